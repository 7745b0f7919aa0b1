"""The command line: one file per command in `commands/`; nothing is decided here."""
