"""One file per noun. An operation loads rows, asks the domain, saves and records events, in one transaction."""
