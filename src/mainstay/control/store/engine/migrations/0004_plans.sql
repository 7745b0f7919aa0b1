-- What the agent is asked in noop for a plan. A row lives as long as somebody waits for its answer.
CREATE TABLE plan_requests (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  deadline_at INTEGER NOT NULL,
  taken INTEGER NOT NULL,
  -- Sealed where there is a vault; without one there are no secrets.
  question BLOB NOT NULL,
  answer BLOB
) STRICT;
CREATE INDEX plan_requests_waiting ON plan_requests (agent_id, created_at) WHERE taken = 0;
CREATE INDEX plan_requests_by_deadline ON plan_requests (deadline_at);

-- What the host's part of the plan must still be when the job is begun. Empty: it was ordered without a plan.
ALTER TABLE jobs ADD COLUMN plan_digest TEXT;
