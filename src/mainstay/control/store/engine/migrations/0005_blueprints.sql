-- The version that new services of the type get, and the one that a run brings its service to.
ALTER TABLE service_types ADD COLUMN blueprint_digest TEXT;
ALTER TABLE runs ADD COLUMN blueprint_digest TEXT;

-- A bundle without a version was replaced by another one of the same version, or is from before there were versions.
ALTER TABLE blueprints ADD COLUMN name TEXT;
ALTER TABLE blueprints ADD COLUMN name_folded TEXT;
ALTER TABLE blueprints ADD COLUMN version TEXT;
ALTER TABLE blueprints ADD COLUMN service_type_id TEXT REFERENCES service_types (id) ON DELETE SET NULL;
-- The actions that bring a service to it.
ALTER TABLE blueprints ADD COLUMN moves TEXT;
CREATE UNIQUE INDEX blueprints_one_version ON blueprints (name, version);
CREATE INDEX blueprints_by_age ON blueprints (created_at, digest);
CREATE INDEX blueprints_by_service_type ON blueprints (service_type_id);
CREATE INDEX service_types_by_blueprint ON service_types (blueprint_digest);

CREATE VIEW blueprint_versions AS
SELECT digest AS id, digest, created_at, created_at AS updated_at, name, name_folded, version, service_type_id,
  CASE WHEN EXISTS (SELECT 1 FROM service_types WHERE service_types.blueprint_digest = blueprints.digest)
    THEN 1 ELSE 0 END AS is_current
FROM blueprints WHERE version IS NOT NULL;
