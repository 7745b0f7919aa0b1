"""The one YAML reader: manifests, blueprints, service types, orders and property files."""
