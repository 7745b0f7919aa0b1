-- Every noun is a table. Ids are UUIDs as text, times are microseconds since 1970 in UTC, truth is 0 or 1, documents are
-- JSON as text (which keeps the order of their members). name_folded is the name as searches see it.

CREATE TABLE participants (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  status TEXT NOT NULL
) STRICT;
CREATE INDEX participants_by_age ON participants (created_at, id);

CREATE TABLE service_types (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL UNIQUE,
  name_folded TEXT NOT NULL,
  property_schema TEXT,
  lifecycle_schema TEXT
) STRICT;
CREATE INDEX service_types_by_age ON service_types (created_at, id);

CREATE TABLE agent_types (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL UNIQUE,
  name_folded TEXT NOT NULL,
  service_type_ids TEXT NOT NULL,
  configuration_schema TEXT,
  config_template TEXT,
  cmd_template TEXT,
  config_content_type TEXT
) STRICT;
CREATE INDEX agent_types_by_age ON agent_types (created_at, id);

-- The list in agent_types is what was written, in its order; this is the same, held by the database.
CREATE TABLE agent_type_service_types (
  agent_type_id TEXT NOT NULL REFERENCES agent_types (id) ON DELETE CASCADE,
  service_type_id TEXT NOT NULL REFERENCES service_types (id),
  PRIMARY KEY (agent_type_id, service_type_id)
) STRICT;
CREATE INDEX agent_type_service_types_by_service_type ON agent_type_service_types (service_type_id);

CREATE TABLE service_pool_sets (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  provider_id TEXT NOT NULL REFERENCES participants (id)
) STRICT;
CREATE INDEX service_pool_sets_by_age ON service_pool_sets (created_at, id);
CREATE INDEX service_pool_sets_by_provider ON service_pool_sets (provider_id);

CREATE TABLE agents (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  status TEXT NOT NULL,
  last_status_update INTEGER NOT NULL,
  tags TEXT NOT NULL,
  configuration TEXT,
  provider_id TEXT NOT NULL REFERENCES participants (id),
  agent_type_id TEXT NOT NULL REFERENCES agent_types (id),
  service_pool_set_id TEXT REFERENCES service_pool_sets (id)
) STRICT;
CREATE INDEX agents_by_age ON agents (created_at, id);
CREATE INDEX agents_by_provider ON agents (provider_id);
CREATE INDEX agents_by_agent_type ON agents (agent_type_id);
CREATE INDEX agents_by_service_pool_set ON agents (service_pool_set_id);
CREATE INDEX agents_by_silence ON agents (last_status_update) WHERE status = 'Connected';

CREATE TABLE enrolment_codes (
  hash TEXT PRIMARY KEY,
  agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX enrolment_codes_by_agent ON enrolment_codes (agent_id);

CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  role TEXT NOT NULL,
  expire_at INTEGER,
  participant_id TEXT REFERENCES participants (id) ON DELETE CASCADE,
  agent_id TEXT REFERENCES agents (id) ON DELETE CASCADE,
  hash TEXT NOT NULL UNIQUE
) STRICT;
CREATE INDEX tokens_by_age ON tokens (created_at, id);
CREATE INDEX tokens_by_participant ON tokens (participant_id);
CREATE INDEX tokens_by_agent ON tokens (agent_id);

-- A row gets its number from the first reader after its commit, so the numbers have no gaps and no reader skips one.
CREATE TABLE events (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  sequence_number INTEGER UNIQUE,
  type TEXT NOT NULL,
  initiator_type TEXT NOT NULL,
  initiator_id TEXT NOT NULL,
  entity_id TEXT NOT NULL,
  properties TEXT NOT NULL,
  provider_id TEXT,
  consumer_id TEXT,
  agent_id TEXT,
  participant_id TEXT
) STRICT;
CREATE INDEX events_by_age ON events (created_at, id);
CREATE INDEX events_unnumbered ON events (created_at, ordinal, id) WHERE sequence_number IS NULL;
CREATE INDEX events_by_entity ON events (entity_id, created_at);
CREATE INDEX events_by_provider ON events (provider_id, sequence_number);
CREATE INDEX events_by_consumer ON events (consumer_id, sequence_number);
CREATE INDEX events_by_participant ON events (participant_id, sequence_number);

CREATE TABLE service_groups (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  consumer_id TEXT NOT NULL REFERENCES participants (id)
) STRICT;
CREATE INDEX service_groups_by_age ON service_groups (created_at, id);
CREATE INDEX service_groups_by_consumer ON service_groups (consumer_id, name);

CREATE TABLE service_option_types (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  type TEXT NOT NULL UNIQUE,
  description TEXT NOT NULL
) STRICT;
CREATE INDEX service_option_types_by_age ON service_option_types (created_at, id);

CREATE TABLE service_options (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  provider_id TEXT NOT NULL REFERENCES participants (id),
  service_option_type_id TEXT NOT NULL REFERENCES service_option_types (id),
  value TEXT NOT NULL,
  enabled INTEGER NOT NULL,
  display_order INTEGER NOT NULL
) STRICT;
CREATE INDEX service_options_by_age ON service_options (created_at, id);
CREATE INDEX service_options_by_provider ON service_options (provider_id, service_option_type_id);
CREATE INDEX service_options_by_type ON service_options (service_option_type_id);

-- Sealed values only; the key is never here.
CREATE TABLE vault_secrets (
  reference TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  ciphertext BLOB NOT NULL,
  key_id TEXT NOT NULL,
  owner_kind TEXT NOT NULL,
  owner_id TEXT NOT NULL,
  schema_path TEXT NOT NULL,
  type TEXT NOT NULL
) STRICT;
CREATE INDEX vault_secrets_by_owner ON vault_secrets (owner_kind, owner_id);
CREATE INDEX vault_secrets_by_age ON vault_secrets (created_at);
CREATE INDEX vault_secrets_by_key ON vault_secrets (key_id);

CREATE TABLE services (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  status TEXT NOT NULL,
  properties TEXT NOT NULL,
  agent_instance_id TEXT,
  agent_instance_data TEXT,
  provider_id TEXT NOT NULL REFERENCES participants (id),
  consumer_id TEXT NOT NULL REFERENCES participants (id),
  group_id TEXT NOT NULL REFERENCES service_groups (id),
  agent_id TEXT NOT NULL REFERENCES agents (id),
  service_type_id TEXT NOT NULL REFERENCES service_types (id),
  conditions TEXT NOT NULL,
  blueprint_digest TEXT,
  version INTEGER NOT NULL,
  -- In a terminal state of its lifecycle: nothing happens to it any more.
  is_terminal INTEGER NOT NULL,
  -- Path of a property -> who set it, when, by which job.
  provenance TEXT NOT NULL
) STRICT;
CREATE INDEX services_by_age ON services (created_at, id);
CREATE INDEX services_by_provider ON services (provider_id, created_at, id);
CREATE INDEX services_by_consumer ON services (consumer_id, created_at, id);
CREATE INDEX services_by_group ON services (group_id, created_at, id);
CREATE INDEX services_by_agent ON services (agent_id, created_at, id);
CREATE INDEX services_by_type ON services (service_type_id, created_at, id);
CREATE INDEX services_by_status ON services (status, created_at, id);
CREATE INDEX services_living_by_agent ON services (agent_id) WHERE is_terminal = 0;
CREATE UNIQUE INDEX services_one_instance ON services (agent_id, agent_instance_id);

-- Which service's properties name which other service.
CREATE TABLE service_references (
  service_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,
  path TEXT NOT NULL,
  target_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,
  PRIMARY KEY (service_id, path)
) STRICT;
CREATE INDEX service_references_by_target ON service_references (target_id);

-- Every state a service came into, for its uptime.
CREATE TABLE service_states (
  service_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,
  entered_at INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  state TEXT NOT NULL,
  PRIMARY KEY (service_id, entered_at, ordinal)
) STRICT;

-- One request on its way through the lifecycle: what becomes true when it succeeds, and what goes back when it does not.
CREATE TABLE runs (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  service_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,
  action TEXT NOT NULL,
  visited TEXT NOT NULL,
  properties TEXT,
  origins TEXT NOT NULL,
  taken_values TEXT NOT NULL,
  released_values TEXT NOT NULL,
  new_secrets TEXT NOT NULL,
  retired_secrets TEXT NOT NULL
) STRICT;
CREATE INDEX runs_by_service ON runs (service_id);

CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  action TEXT NOT NULL,
  params TEXT,
  priority INTEGER NOT NULL,
  status TEXT NOT NULL,
  error_message TEXT,
  claimed_at INTEGER,
  completed_at INTEGER,
  lease_expires_at INTEGER,
  attempt INTEGER NOT NULL,
  progress TEXT,
  cancel_requested INTEGER NOT NULL,
  run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  step INTEGER NOT NULL,
  blueprint_digest TEXT,
  agent_id TEXT NOT NULL REFERENCES agents (id),
  service_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,
  provider_id TEXT NOT NULL REFERENCES participants (id),
  consumer_id TEXT NOT NULL REFERENCES participants (id),
  group_id TEXT NOT NULL,
  -- When nobody has claimed, renewed or finished it by then, it is timed out. Empty waits for ever.
  deadline_at INTEGER,
  lease_hash TEXT,
  claim_id TEXT,
  outcome TEXT,
  report TEXT
) STRICT;
CREATE UNIQUE INDEX jobs_one_active ON jobs (service_id) WHERE status IN ('Pending', 'Processing');
CREATE INDEX jobs_by_age ON jobs (created_at, id);
CREATE INDEX jobs_by_service ON jobs (service_id, created_at, id);
CREATE INDEX jobs_by_agent ON jobs (agent_id, created_at, id);
CREATE INDEX jobs_by_provider ON jobs (provider_id, created_at, id);
CREATE INDEX jobs_by_consumer ON jobs (consumer_id, created_at, id);
CREATE INDEX jobs_by_run ON jobs (run_id);
CREATE INDEX jobs_pending ON jobs (agent_id, priority, created_at) WHERE status = 'Pending';
CREATE INDEX jobs_processing ON jobs (agent_id, group_id) WHERE status = 'Processing';
CREATE INDEX jobs_by_deadline ON jobs (deadline_at) WHERE status IN ('Pending', 'Processing');

CREATE TABLE service_pools (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  type TEXT NOT NULL,
  property_type TEXT NOT NULL,
  generator_type TEXT NOT NULL,
  generator_config TEXT,
  service_pool_set_id TEXT NOT NULL REFERENCES service_pool_sets (id),
  provider_id TEXT NOT NULL REFERENCES participants (id),
  UNIQUE (service_pool_set_id, type)
) STRICT;
CREATE INDEX service_pools_by_age ON service_pools (created_at, id);
CREATE INDEX service_pools_by_provider ON service_pools (provider_id);

CREATE TABLE service_pool_values (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  value TEXT NOT NULL,
  service_pool_id TEXT NOT NULL REFERENCES service_pools (id) ON DELETE CASCADE,
  provider_id TEXT NOT NULL REFERENCES participants (id),
  -- Checked at the commit: a value is taken for a service while that is still being decided.
  service_id TEXT REFERENCES services (id) DEFERRABLE INITIALLY DEFERRED,
  property_name TEXT,
  allocated_at INTEGER,
  -- Equal for equal JSON.
  value_key TEXT NOT NULL,
  UNIQUE (service_pool_id, value_key)
) STRICT;
CREATE INDEX service_pool_values_by_age ON service_pool_values (created_at, id);
CREATE INDEX service_pool_values_by_provider ON service_pool_values (provider_id);
CREATE INDEX service_pool_values_by_service ON service_pool_values (service_id);
CREATE INDEX service_pool_values_free ON service_pool_values (service_pool_id, created_at, id)
  WHERE service_id IS NULL;

-- The free addresses of a subnet pool, as ranges that never touch; an address is 16 bytes, so that order is numeric.
CREATE TABLE service_pool_ranges (
  service_pool_id TEXT NOT NULL REFERENCES service_pools (id) ON DELETE CASCADE,
  first_address BLOB NOT NULL,
  last_address BLOB NOT NULL,
  PRIMARY KEY (service_pool_id, first_address)
) STRICT;

-- Which secret was read for which job (empty: for none), so that it is told once.
CREATE TABLE vault_readings (
  reference TEXT NOT NULL REFERENCES vault_secrets (reference) ON DELETE CASCADE,
  job_id TEXT NOT NULL,
  read_at INTEGER NOT NULL,
  PRIMARY KEY (reference, job_id)
) STRICT;
