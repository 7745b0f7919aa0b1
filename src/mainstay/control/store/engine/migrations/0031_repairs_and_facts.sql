-- Compatible since: 0021
-- A repair that was requested and that the agent has not finished; announced: whether its long poll has returned for it.
ALTER TABLE services ADD COLUMN repair_requested_at INTEGER;
ALTER TABLE services ADD COLUMN repair_announced INTEGER NOT NULL DEFAULT 0;
CREATE INDEX services_repair_requested ON services (agent_id) WHERE repair_requested_at IS NOT NULL;

-- What an agent reports of itself and of its host.
ALTER TABLE agents ADD COLUMN version TEXT;
ALTER TABLE agents ADD COLUMN facts TEXT;
