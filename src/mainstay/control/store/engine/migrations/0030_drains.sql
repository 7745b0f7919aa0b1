-- Compatible since: 0021
-- The drain of an agent, with the caller that started it: the moves of its services are that caller's.
CREATE TABLE agent_drains (
  agent_id TEXT PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
  move INTEGER NOT NULL,
  since INTEGER NOT NULL,
  initiator TEXT NOT NULL,
  advanced_at INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Services that a drain tried to move: the job of the move that runs, or why the service stays.
CREATE TABLE drained_services (
  agent_id TEXT NOT NULL REFERENCES agent_drains (agent_id) ON DELETE CASCADE,
  service_id TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,
  job_id TEXT,
  reason TEXT,
  PRIMARY KEY (agent_id, service_id)
) STRICT;
CREATE INDEX drained_services_by_service ON drained_services (service_id);
