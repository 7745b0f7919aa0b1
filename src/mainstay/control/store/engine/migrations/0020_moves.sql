-- Whether services on this bundle may move to another agent, and whether an agent ever asked for what only agents that
-- run blueprints need.
ALTER TABLE blueprints ADD COLUMN movable INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN supports_blueprints INTEGER NOT NULL DEFAULT 0;

-- A move is a job `create` on the target; the service changes its agent when the job completes.
ALTER TABLE jobs ADD COLUMN is_move INTEGER NOT NULL DEFAULT 0;

-- What the host of an orphan has. Empty: the service row has it, because the service ended there.
ALTER TABLE orphans ADD COLUMN snapshot TEXT;
ALTER TABLE orphans ADD COLUMN blueprint_digest TEXT;
ALTER TABLE orphans ADD COLUMN agent_instance_id TEXT;
CREATE INDEX orphans_open_by_bundle ON orphans (agent_id, blueprint_digest) WHERE closed_at IS NULL;

-- A value that an orphan holds: no run of the service gives it back.
ALTER TABLE service_pool_values ADD COLUMN orphan_id TEXT;
CREATE INDEX service_pool_values_by_orphan ON service_pool_values (orphan_id) WHERE orphan_id IS NOT NULL;

-- A secret that an orphan holds stays when the service replaces it.
CREATE TABLE orphan_secrets (
  orphan_id TEXT NOT NULL REFERENCES orphans (id) ON DELETE CASCADE,
  reference TEXT NOT NULL,
  PRIMARY KEY (orphan_id, reference)
) STRICT;
CREATE INDEX orphan_secrets_by_reference ON orphan_secrets (reference);
