-- A participant's services in one status, from any position: neither its other services nor other people's are met.
CREATE INDEX services_by_provider_status ON services (provider_id, status, created_at, id);
CREATE INDEX services_by_consumer_status ON services (consumer_id, status, created_at, id);
