"""How pages show jobs, plans, events, diffs, reports, pools, properties and schemas, and in which words."""
