-- Pools whose values go into configurations of agents.
CREATE TABLE config_pools (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  type TEXT NOT NULL,
  property_type TEXT NOT NULL,
  generator_type TEXT NOT NULL,
  generator_config TEXT,
  -- Null: global.
  participant_id TEXT REFERENCES participants (id)
) STRICT;
CREATE UNIQUE INDEX config_pools_by_type ON config_pools (type, coalesce(participant_id, ''));
CREATE INDEX config_pools_by_age ON config_pools (created_at, id);
CREATE INDEX config_pools_by_participant ON config_pools (participant_id);

CREATE TABLE config_pool_values (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  value TEXT NOT NULL,
  config_pool_id TEXT NOT NULL REFERENCES config_pools (id),
  participant_id TEXT REFERENCES participants (id),
  -- Checked at the commit: a value is taken for an agent that is not stored yet.
  agent_id TEXT REFERENCES agents (id) DEFERRABLE INITIALLY DEFERRED,
  property_name TEXT,
  allocated_at INTEGER,
  -- Equal for equal JSON.
  value_key TEXT NOT NULL,
  UNIQUE (config_pool_id, value_key)
) STRICT;
CREATE INDEX config_pool_values_by_age ON config_pool_values (created_at, id);
CREATE INDEX config_pool_values_by_participant ON config_pool_values (participant_id);
CREATE INDEX config_pool_values_by_agent ON config_pool_values (agent_id);
CREATE INDEX config_pool_values_free ON config_pool_values (config_pool_id, created_at, id) WHERE agent_id IS NULL;

-- The install command of an agent. The token itself is not stored.
CREATE TABLE install_commands (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  agent_id TEXT NOT NULL UNIQUE REFERENCES agents (id) ON DELETE CASCADE,
  provider_id TEXT NOT NULL REFERENCES participants (id),
  -- Null: the agent's token of this command was deleted.
  token_id TEXT REFERENCES tokens (id) ON DELETE SET NULL,
  expires_at INTEGER NOT NULL,
  hash TEXT NOT NULL UNIQUE
) STRICT;
CREATE INDEX install_commands_by_provider ON install_commands (provider_id);
CREATE INDEX install_commands_by_token ON install_commands (token_id);
