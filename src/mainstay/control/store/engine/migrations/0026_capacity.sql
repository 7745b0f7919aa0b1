-- Compatible since: 0021
-- Capacity: the most services that placement gives an agent; null: unlimited. A draining agent gets none.
ALTER TABLE agents ADD COLUMN capacity INTEGER;
ALTER TABLE agents ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;
