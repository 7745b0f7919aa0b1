-- New events get number and hash with one write. The index has only those that still lack a hash after that, so that an
-- insert does not write it.
DROP INDEX events_unhashed;
CREATE INDEX events_unhashed ON events (sequence_number) WHERE hash IS NULL AND sequence_number IS NOT NULL;
