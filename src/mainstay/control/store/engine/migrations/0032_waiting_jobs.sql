-- Compatible since: 0021
-- The service that a job waits for before an agent may claim it. Null: none. An older server does not wait.
ALTER TABLE jobs ADD COLUMN waiting_for TEXT;
