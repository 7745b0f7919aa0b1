"""One file is one rule: the folder says its kind, `RULE` is the rule, and nothing else has to be touched to add one."""
