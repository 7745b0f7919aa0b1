-- When a token was last used, to within minutes: operators delete tokens that are not in use.
ALTER TABLE tokens ADD COLUMN last_used_at INTEGER;
