-- Tokens that may only read.
ALTER TABLE tokens ADD COLUMN read_only INTEGER NOT NULL DEFAULT 0;
