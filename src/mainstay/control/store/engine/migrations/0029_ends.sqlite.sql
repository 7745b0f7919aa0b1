-- Compatible since: 0021
-- An enrollment code ends with the token that made it, unless an admin has decided otherwise. Codes of existing agents live
-- for 15 minutes; those from before have no initiator and end by themselves.
ALTER TABLE host_enrolment_codes ADD COLUMN outlives_token INTEGER NOT NULL DEFAULT 0;
ALTER TABLE enrolment_codes ADD COLUMN initiator_id TEXT;
CREATE INDEX host_enrolment_codes_by_initiator ON host_enrolment_codes (initiator_id);

-- Which members of an event its hash covers; null is version 1. The server that hashes an event sets it.
ALTER TABLE events ADD COLUMN chain_version INTEGER;

-- Retention records what it deletes; this event is for what it deleted before.
INSERT INTO events (id, created_at, updated_at, ordinal, type, initiator_type, initiator_id, entity_id, properties)
SELECT lower(substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-4' || substr(h, 14, 3) || '-8' || substr(h, 18, 3) || '-' || substr(h, 21, 12)), now.at, now.at, 0, 'events.deleted', 'system',
  '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000',
  '{"upTo":' || sequence_number || ',"hash":"' || hash || '"}'
FROM event_checkpoints, (SELECT CAST(strftime('%s') AS INTEGER) * 1000000 AS at, hex(randomblob(16)) AS h) AS now;
