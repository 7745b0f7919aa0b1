"""Rules, one per file with `RULE`; the folder is the kind. `control/rulebook.py` finds them."""
