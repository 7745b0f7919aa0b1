-- The last event that retention has deleted: the hash chain begins after it. One row; none before the first deletion.
CREATE TABLE event_checkpoints (
  id INTEGER PRIMARY KEY,
  sequence_number INTEGER NOT NULL,
  hash TEXT NOT NULL
) STRICT;

-- How far the deletion of old rows is, for each kind of row. Without a position the next pass starts at the oldest row.
CREATE TABLE retention_passes (
  kind TEXT PRIMARY KEY,
  finished_at INTEGER NOT NULL,
  position_at INTEGER NOT NULL,
  position_id TEXT NOT NULL
) STRICT;

CREATE INDEX services_ended ON services (created_at, id) WHERE is_terminal = 1;
CREATE INDEX jobs_with_report ON jobs (created_at, id) WHERE report IS NOT NULL;
CREATE INDEX vault_readings_by_age ON vault_readings (read_at);
CREATE INDEX orphans_closed ON orphans (created_at, id) WHERE closed_at IS NOT NULL;
