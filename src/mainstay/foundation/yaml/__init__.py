"""The YAML reader for manifests, blueprints, service types, orders and property files."""
