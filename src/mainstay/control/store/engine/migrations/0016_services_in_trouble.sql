-- Whether the condition InSync is False, and the last job if it failed: for lists of services that need attention.
ALTER TABLE services ADD COLUMN drifted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE services ADD COLUMN failed_job_id TEXT;
UPDATE services SET drifted = 1 WHERE is_terminal = 0 AND conditions LIKE '%"type":"InSync","status":"False"%';
UPDATE services SET failed_job_id =
  (SELECT id FROM jobs WHERE jobs.service_id = services.id ORDER BY created_at DESC, id DESC LIMIT 1)
  WHERE is_terminal = 0 AND 'Failed' =
  (SELECT status FROM jobs WHERE jobs.service_id = services.id ORDER BY created_at DESC, id DESC LIMIT 1);
CREATE INDEX services_drifted ON services (created_at, id) WHERE drifted = 1;
CREATE INDEX services_failed ON services (created_at, id) WHERE failed_job_id IS NOT NULL;
CREATE INDEX services_living ON services (service_type_id, status) WHERE is_terminal = 0;
