-- Who reads events in order, how far it is, and which of its instances is at it.
CREATE TABLE event_subscriptions (
  subscriber_id TEXT PRIMARY KEY,
  instance_id TEXT NOT NULL,
  lease_expires_at INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL
) STRICT;

CREATE TABLE metric_types (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  name TEXT NOT NULL UNIQUE,
  name_folded TEXT NOT NULL,
  entity_type TEXT NOT NULL
) STRICT;
CREATE INDEX metric_types_by_age ON metric_types (created_at, id);

CREATE TABLE metric_entries (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  resource_id TEXT NOT NULL,
  value REAL NOT NULL,
  type_id TEXT NOT NULL REFERENCES metric_types (id),
  agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  service_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,
  provider_id TEXT NOT NULL REFERENCES participants (id) ON DELETE CASCADE,
  consumer_id TEXT NOT NULL REFERENCES participants (id) ON DELETE CASCADE
) STRICT;
CREATE INDEX metric_entries_by_age ON metric_entries (created_at, id);
CREATE INDEX metric_entries_series ON metric_entries (service_id, resource_id, type_id, created_at);
CREATE INDEX metric_entries_by_type ON metric_entries (type_id);
CREATE INDEX metric_entries_by_agent ON metric_entries (agent_id);
CREATE INDEX metric_entries_by_provider ON metric_entries (provider_id, created_at, id);
CREATE INDEX metric_entries_by_consumer ON metric_entries (consumer_id, created_at, id);

-- Orders that may be sent twice: what was asked, as a digest, and what was answered.
CREATE TABLE idempotency_keys (
  token_id TEXT NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
  key TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  body_digest TEXT NOT NULL,
  answer TEXT NOT NULL,
  PRIMARY KEY (token_id, key)
) STRICT;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

CREATE TABLE blueprints (
  digest TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  content BLOB NOT NULL
) STRICT;
