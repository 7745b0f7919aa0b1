"""One file per command, each with `SUMMARY`, `GROUP`, `configure(parser)` and `run(arguments) -> exit code`."""
