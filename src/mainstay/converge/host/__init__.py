"""The only door to the operating system: files, commands, accounts, facts, the state directory."""
