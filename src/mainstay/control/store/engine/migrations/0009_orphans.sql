-- What a service left on a host after a forced delete: its agent owes a clean-up until closed_at is set.
CREATE TABLE orphans (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  service_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,
  service_name TEXT NOT NULL,
  agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  provider_id TEXT NOT NULL REFERENCES participants (id) ON DELETE CASCADE,
  reason TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  last_error TEXT,
  -- The agent's report of the last clean-up.
  report TEXT,
  closed_at INTEGER
) STRICT;
CREATE INDEX orphans_by_age ON orphans (created_at, id);
CREATE INDEX orphans_by_service ON orphans (service_id);
CREATE INDEX orphans_open ON orphans (created_at, id) WHERE closed_at IS NULL;
CREATE INDEX orphans_open_by_agent ON orphans (agent_id, created_at, id) WHERE closed_at IS NULL;
CREATE INDEX orphans_open_by_provider ON orphans (provider_id, created_at, id) WHERE closed_at IS NULL;

-- A terminal service with an open orphan keeps its pool values, its instance id and its secrets.
ALTER TABLE services ADD COLUMN orphan INTEGER NOT NULL DEFAULT 0;

-- Whether an agent ever claimed the job. A released or requeued job loses its claimed_at.
ALTER TABLE jobs ADD COLUMN was_claimed INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET was_claimed = 1 WHERE claimed_at IS NOT NULL OR attempt > 1
  OR EXISTS (SELECT 1 FROM events WHERE events.entity_id = jobs.id AND events.type = 'job.claimed');
