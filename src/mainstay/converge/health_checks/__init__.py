"""Health checks: one file is one kind."""
