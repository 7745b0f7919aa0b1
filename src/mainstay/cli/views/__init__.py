"""How results look in a terminal: tables, runs, reports."""
