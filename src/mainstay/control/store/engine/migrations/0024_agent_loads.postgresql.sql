-- Compatible since: 0021
-- The number of living services of an agent is the sum of its rows. Counting services for every order without an agent
-- took longer with every service. A change adds a row, so orders do not wait for each other; a background task combines
-- them. Triggers keep it, so it is in no backup.
CREATE TABLE agent_loads (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  agent_id TEXT NOT NULL,
  living BIGINT NOT NULL
);
CREATE INDEX agent_loads_by_agent ON agent_loads (agent_id, id);

CREATE FUNCTION count_living_service() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' AND old.is_terminal = 0 THEN
    INSERT INTO agent_loads (agent_id, living) VALUES (old.agent_id, -1);
  END IF;
  IF TG_OP <> 'DELETE' AND new.is_terminal = 0 THEN
    INSERT INTO agent_loads (agent_id, living) VALUES (new.agent_id, 1);
  END IF;
  RETURN NULL;
END $$;

-- Each trigger waits for the writers of services and keeps new ones out until the commit, so that the first count below
-- misses none.
CREATE TRIGGER agent_loads_insert AFTER INSERT ON services FOR EACH ROW
WHEN (new.is_terminal = 0) EXECUTE FUNCTION count_living_service();

CREATE TRIGGER agent_loads_delete AFTER DELETE ON services FOR EACH ROW
WHEN (old.is_terminal = 0) EXECUTE FUNCTION count_living_service();

CREATE TRIGGER agent_loads_update AFTER UPDATE OF agent_id, is_terminal ON services FOR EACH ROW
WHEN (old.agent_id <> new.agent_id OR old.is_terminal <> new.is_terminal) EXECUTE FUNCTION count_living_service();

INSERT INTO agent_loads (agent_id, living) SELECT agent_id, count(*) FROM services WHERE is_terminal = 0 GROUP BY agent_id;
