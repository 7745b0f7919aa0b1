-- Steps of the clock that the times below were moved by. A server compares the last number at every transaction.
CREATE TABLE clock_steps (
  number INTEGER PRIMARY KEY,
  noticed_at INTEGER NOT NULL,
  microseconds INTEGER NOT NULL
) STRICT;
