-- The names of services, each under a number that stays: those that SQLite gives to the rows of `services` by itself may
-- change when the file is compacted. Triggers keep it, so it is in no backup.
CREATE TABLE service_names_rows (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  name_folded TEXT NOT NULL
) STRICT;
INSERT INTO service_names_rows (id, name_folded) SELECT id, name_folded FROM services;

-- The numbers of names that may match, by trigrams: whoever searches compares the name itself as well. No text and no
-- positions are kept, so the index is small and cheap to write.
CREATE VIRTUAL TABLE service_names USING fts5 (
  name_folded, content = 'service_names_rows', content_rowid = 'number', detail = 'none', columnsize = 0,
  tokenize = 'trigram case_sensitive 1'
);
INSERT INTO service_names (service_names) VALUES ('rebuild');

CREATE TRIGGER service_names_insert AFTER INSERT ON services BEGIN
  INSERT INTO service_names_rows (id, name_folded) VALUES (new.id, new.name_folded);
END;

CREATE TRIGGER service_names_delete AFTER DELETE ON services BEGIN
  DELETE FROM service_names_rows WHERE id = old.id;
END;

CREATE TRIGGER service_names_update AFTER UPDATE OF name_folded ON services WHEN old.name_folded <> new.name_folded BEGIN
  UPDATE service_names_rows SET name_folded = new.name_folded WHERE id = old.id;
END;

CREATE TRIGGER service_names_rows_insert AFTER INSERT ON service_names_rows BEGIN
  INSERT INTO service_names (rowid, name_folded) VALUES (new.number, new.name_folded);
END;

CREATE TRIGGER service_names_rows_delete AFTER DELETE ON service_names_rows BEGIN
  INSERT INTO service_names (service_names, rowid, name_folded) VALUES ('delete', old.number, old.name_folded);
END;

CREATE TRIGGER service_names_rows_update AFTER UPDATE ON service_names_rows BEGIN
  INSERT INTO service_names (service_names, rowid, name_folded) VALUES ('delete', old.number, old.name_folded);
  INSERT INTO service_names (rowid, name_folded) VALUES (new.number, new.name_folded);
END;
