-- The last progress messages of an active job: [[time, attempt, text], …].
ALTER TABLE jobs ADD COLUMN progress_log TEXT;
-- Lists of jobs by state: failed and cancelled ones are few, and found among millions of others.
CREATE INDEX jobs_unsuccessful ON jobs (created_at, id) WHERE status IN ('Failed', 'Cancelled');
CREATE INDEX jobs_unsuccessful_by_provider ON jobs (provider_id, created_at, id) WHERE status IN ('Failed', 'Cancelled');
CREATE INDEX jobs_unsuccessful_by_consumer ON jobs (consumer_id, created_at, id) WHERE status IN ('Failed', 'Cancelled');
