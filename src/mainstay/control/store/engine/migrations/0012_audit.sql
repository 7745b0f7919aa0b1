-- The role and name of the caller that caused an event, and the hash that chains it to the event before it. The name is
-- kept here because tokens, participants and agents are deleted.
ALTER TABLE events ADD COLUMN initiator_role TEXT;
ALTER TABLE events ADD COLUMN initiator_name TEXT;
ALTER TABLE events ADD COLUMN initiator_participant_id TEXT;
ALTER TABLE events ADD COLUMN hash TEXT;
CREATE INDEX events_unhashed ON events (sequence_number) WHERE hash IS NULL;
