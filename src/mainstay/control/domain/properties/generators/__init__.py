"""Generators, one per file: `RULE` generates a value if none was given."""
