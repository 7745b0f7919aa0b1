-- Compatible since: 0021
-- How many batches each participant has sent; the empty owner is the admins. A batch that names a revision is refused if
-- another one came first. An older server does not count its batches.
CREATE TABLE batch_revisions (
  owner TEXT PRIMARY KEY,
  revision INTEGER NOT NULL
) STRICT;
