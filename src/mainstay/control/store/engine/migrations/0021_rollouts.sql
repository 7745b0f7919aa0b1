-- One action on all services of a type, wave by wave. advanced_at: when the background task last looked at it.
CREATE TABLE rollouts (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  service_type_id TEXT NOT NULL REFERENCES service_types (id) ON DELETE CASCADE,
  action TEXT NOT NULL,
  blueprint_version TEXT,
  blueprint_digest TEXT,
  batch TEXT NOT NULL,
  batch_size INTEGER NOT NULL,
  max_failures INTEGER NOT NULL,
  status TEXT NOT NULL,
  failures INTEGER NOT NULL,
  wave INTEGER NOT NULL,
  total INTEGER NOT NULL,
  completed_at INTEGER,
  initiator_id TEXT NOT NULL,
  initiator_name TEXT NOT NULL,
  advanced_at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX rollouts_by_age ON rollouts (created_at, id);
CREATE UNIQUE INDEX rollouts_one_open ON rollouts (service_type_id) WHERE status IN ('Running', 'Paused', 'Stopped');

-- id is the service: the order of members is the order of their ids.
CREATE TABLE rollout_items (
  rollout_id TEXT NOT NULL REFERENCES rollouts (id) ON DELETE CASCADE,
  service_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,
  id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  wave INTEGER NOT NULL,
  status TEXT NOT NULL,
  job_id TEXT,
  reason TEXT,
  PRIMARY KEY (rollout_id, service_id)
) STRICT;
CREATE INDEX rollout_items_by_service ON rollout_items (service_id);
CREATE INDEX rollout_items_by_status ON rollout_items (rollout_id, status, wave, service_id);
CREATE INDEX rollout_items_running ON rollout_items (rollout_id, wave) WHERE status = 'Running';
