-- Which places a sealed value is bound to. 1: reference, owner and schema path. 2: the type of the secret too.
ALTER TABLE vault_secrets ADD COLUMN seal_version INTEGER NOT NULL DEFAULT 1;
