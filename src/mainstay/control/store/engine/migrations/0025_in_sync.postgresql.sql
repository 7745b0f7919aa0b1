-- Compatible since: 0021
-- The status of the condition InSync, for filters and counts. Computed from the conditions, so that a server of an older
-- release, which does not know it, cannot leave it out of date. Null: the agent has not reported it.
ALTER TABLE services ADD COLUMN in_sync TEXT GENERATED ALWAYS AS (CASE
  WHEN conditions LIKE '%"type":"InSync","status":"True"%' THEN 'True'
  WHEN conditions LIKE '%"type":"InSync","status":"False"%' THEN 'False'
  WHEN conditions LIKE '%"type":"InSync","status":"Unknown"%' THEN 'Unknown' END) STORED;
CREATE INDEX services_unknown ON services (created_at, id) WHERE in_sync = 'Unknown' AND is_terminal = 0;

-- Agents that have not sent a request yet were Disconnected from their creation on.
UPDATE agents SET status = 'New' WHERE status = 'Disconnected' AND last_status_update = created_at;
