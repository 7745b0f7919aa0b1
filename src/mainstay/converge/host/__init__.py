"""The only code of converge that uses the operating system: files, commands, accounts, facts, state directory."""
