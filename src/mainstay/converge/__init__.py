"""Half one: bring this host to what a manifest says."""
