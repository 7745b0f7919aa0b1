-- Compatible since: 0021
-- Whether a long poll of the agent has returned early for this orphan, so that the clean-up begins within seconds.
ALTER TABLE orphans ADD COLUMN announced INTEGER NOT NULL DEFAULT 0;
CREATE INDEX orphans_unannounced ON orphans (agent_id) WHERE announced = 0 AND closed_at IS NULL;
