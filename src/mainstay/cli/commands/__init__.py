"""One file is one command: `SUMMARY`, `configure(parser)` and `run(arguments) -> exit code`."""
