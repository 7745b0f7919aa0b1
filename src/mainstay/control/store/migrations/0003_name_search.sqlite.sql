-- The names of services by their trigrams, as rows of `services` that may match: whoever searches compares the name itself
-- as well. No text and no positions are kept, so the index is small and cheap to write.
CREATE VIRTUAL TABLE service_names USING fts5 (
  name_folded, content = 'services', detail = 'none', columnsize = 0, tokenize = 'trigram case_sensitive 1'
);
INSERT INTO service_names (service_names) VALUES ('rebuild');

CREATE TRIGGER service_names_insert AFTER INSERT ON services BEGIN
  INSERT INTO service_names (rowid, name_folded) VALUES (new.rowid, new.name_folded);
END;

CREATE TRIGGER service_names_delete AFTER DELETE ON services BEGIN
  INSERT INTO service_names (service_names, rowid, name_folded) VALUES ('delete', old.rowid, old.name_folded);
END;

CREATE TRIGGER service_names_update AFTER UPDATE ON services WHEN old.name_folded <> new.name_folded BEGIN
  INSERT INTO service_names (service_names, rowid, name_folded) VALUES ('delete', old.rowid, old.name_folded);
  INSERT INTO service_names (rowid, name_folded) VALUES (new.rowid, new.name_folded);
END;
