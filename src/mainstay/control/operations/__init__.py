"""One file per noun: load, decide, save, and tell; every operation runs inside one transaction."""
