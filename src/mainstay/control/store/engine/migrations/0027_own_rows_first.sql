-- Compatible since: 0021
-- A list starts from the rows of its caller, in their order: the index of each owner ends with it.
DROP INDEX agents_by_provider;
CREATE INDEX agents_by_provider ON agents (provider_id, created_at, id);
DROP INDEX tokens_by_participant;
CREATE INDEX tokens_by_participant ON tokens (participant_id, created_at, id);
DROP INDEX service_pool_sets_by_provider;
CREATE INDEX service_pool_sets_by_provider ON service_pool_sets (provider_id, created_at, id);
DROP INDEX service_pools_by_provider;
CREATE INDEX service_pools_by_provider ON service_pools (provider_id, created_at, id);
DROP INDEX service_pool_values_by_provider;
CREATE INDEX service_pool_values_by_provider ON service_pool_values (provider_id, created_at, id);
DROP INDEX config_pools_by_participant;
CREATE INDEX config_pools_by_participant ON config_pools (participant_id, created_at, id);
DROP INDEX config_pool_values_by_participant;
CREATE INDEX config_pool_values_by_participant ON config_pool_values (participant_id, created_at, id);
CREATE INDEX service_groups_by_consumer_age ON service_groups (consumer_id, created_at, id);
CREATE INDEX service_options_by_provider_age ON service_options (provider_id, created_at, id);

-- The active jobs of a participant: few of its jobs, and few of all active ones.
CREATE INDEX jobs_active_by_provider ON jobs (provider_id, created_at, id) WHERE status IN ('Pending', 'Processing');
CREATE INDEX jobs_active_by_consumer ON jobs (consumer_id, created_at, id) WHERE status IN ('Pending', 'Processing');
