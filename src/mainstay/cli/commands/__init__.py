"""One file per command, each with `SUMMARY`, `configure(parser)` and `run(arguments) -> exit code`."""
