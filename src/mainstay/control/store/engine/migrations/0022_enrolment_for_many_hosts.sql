-- Compatible since: 0021
-- Codes that enroll many hosts; each use creates an agent. The table enrolment_codes has the codes of existing agents.
-- An older server does not know these codes and refuses them; it deletes them with their provider or agent type.
CREATE TABLE host_enrolment_codes (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  provider_id TEXT NOT NULL REFERENCES participants (id) ON DELETE CASCADE,
  agent_type_id TEXT NOT NULL REFERENCES agent_types (id) ON DELETE CASCADE,
  count INTEGER NOT NULL,
  uses_left INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  tags TEXT NOT NULL,
  name_prefix TEXT NOT NULL,
  initiator_id TEXT NOT NULL,
  initiator_role TEXT NOT NULL,
  initiator_name TEXT NOT NULL,
  hash TEXT NOT NULL UNIQUE
) STRICT;
CREATE INDEX host_enrolment_codes_by_provider ON host_enrolment_codes (provider_id, created_at, id);
CREATE INDEX host_enrolment_codes_by_type ON host_enrolment_codes (agent_type_id);
CREATE INDEX host_enrolment_codes_by_expiry ON host_enrolment_codes (expires_at);
