"""One file is one generator: `RULE` makes a value where none was given."""
