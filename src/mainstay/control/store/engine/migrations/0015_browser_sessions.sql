-- Signed-in browsers. `id` is the hash of the cookie. A session ends with its token: another value has another hash.
CREATE TABLE browser_sessions (
  id TEXT PRIMARY KEY,
  token_hash TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  last_seen_at INTEGER NOT NULL
) STRICT;
CREATE INDEX browser_sessions_by_token ON browser_sessions (token_hash, created_at);
CREATE INDEX browser_sessions_by_last_seen ON browser_sessions (last_seen_at);
