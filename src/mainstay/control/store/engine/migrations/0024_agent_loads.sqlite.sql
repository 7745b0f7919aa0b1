-- Compatible since: 0021
-- The number of living services of an agent is the sum of its rows. Counting services for every order without an agent
-- took longer with every service. A change adds a row, so orders do not wait for each other; a background task combines
-- them. Triggers keep it, so it is in no backup.
CREATE TABLE agent_loads (
  id INTEGER PRIMARY KEY,
  agent_id TEXT NOT NULL,
  living INTEGER NOT NULL
) STRICT;
CREATE INDEX agent_loads_by_agent ON agent_loads (agent_id, id);

CREATE TRIGGER agent_loads_insert AFTER INSERT ON services WHEN new.is_terminal = 0 BEGIN
  INSERT INTO agent_loads (agent_id, living) VALUES (new.agent_id, 1);
END;

CREATE TRIGGER agent_loads_delete AFTER DELETE ON services WHEN old.is_terminal = 0 BEGIN
  INSERT INTO agent_loads (agent_id, living) VALUES (old.agent_id, -1);
END;

CREATE TRIGGER agent_loads_update AFTER UPDATE OF agent_id, is_terminal ON services
WHEN old.agent_id <> new.agent_id OR old.is_terminal <> new.is_terminal BEGIN
  INSERT INTO agent_loads (agent_id, living) SELECT old.agent_id, -1 WHERE old.is_terminal = 0;
  INSERT INTO agent_loads (agent_id, living) SELECT new.agent_id, 1 WHERE new.is_terminal = 0;
END;

INSERT INTO agent_loads (agent_id, living) SELECT agent_id, count(*) FROM services WHERE is_terminal = 0 GROUP BY agent_id;
