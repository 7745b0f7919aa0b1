-- The participants whose agents of a type may serve other participants. The list in agent_types is the same, as written.
ALTER TABLE agent_types ADD COLUMN provider_ids TEXT NOT NULL DEFAULT '[]';
CREATE TABLE agent_type_providers (
  agent_type_id TEXT NOT NULL REFERENCES agent_types (id) ON DELETE CASCADE,
  provider_id TEXT NOT NULL REFERENCES participants (id) ON DELETE CASCADE,
  -- Granted by this migration, and not confirmed by an admin yet.
  by_migration INTEGER NOT NULL,
  PRIMARY KEY (agent_type_id, provider_id)
) STRICT;
CREATE INDEX agent_type_providers_by_provider ON agent_type_providers (provider_id);

-- Agents that already serve another participant keep doing so.
INSERT INTO agent_type_providers (agent_type_id, provider_id, by_migration)
SELECT DISTINCT agents.agent_type_id, agents.provider_id, 1 FROM agents
JOIN services ON services.agent_id = agents.id
WHERE services.is_terminal = 0 AND services.consumer_id <> agents.provider_id;

-- The databases have no common function that makes a list of rows.
UPDATE agent_types SET provider_ids = (
  WITH RECURSIVE listed (last_id, ids) AS (
    SELECT min(provider_id), '"' || min(provider_id) || '"' FROM agent_type_providers
    WHERE agent_type_id = agent_types.id
    UNION ALL
    SELECT provider_id, ids || ',"' || provider_id || '"' FROM listed JOIN agent_type_providers
    ON agent_type_id = agent_types.id AND provider_id = (
      SELECT min(later.provider_id) FROM agent_type_providers AS later
      WHERE later.agent_type_id = agent_types.id AND later.provider_id > last_id
    )
  )
  SELECT '[' || ids || ']' FROM listed ORDER BY last_id DESC LIMIT 1
) WHERE id IN (SELECT agent_type_id FROM agent_type_providers);

-- Only admins set tags with this prefix from now on, so earlier ones must not look as if an admin had set them.
UPDATE agents SET tags = replace(tags, '"plane:', '"was-plane:') WHERE tags LIKE '%"plane:%';

-- Before this migration a provider could undo the decision of an admin, and no row recorded whose decision it was.
ALTER TABLE agents ADD COLUMN disabled_by_admin INTEGER NOT NULL DEFAULT 0;
UPDATE agents SET disabled_by_admin = 1 WHERE status = 'Disabled';
