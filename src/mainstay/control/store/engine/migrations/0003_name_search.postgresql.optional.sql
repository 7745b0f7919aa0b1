-- The names of services by their trigrams. Without the extension, or without the right to create it, searches are slower
-- and find the same.
CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE INDEX services_by_name ON services USING gin (name_folded gin_trgm_ops);
