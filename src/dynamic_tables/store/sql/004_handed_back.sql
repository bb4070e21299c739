ALTER TABLE pending_refreshes ADD COLUMN not_before $instant;

ALTER TABLE pending_refreshes ADD COLUMN returned INTEGER DEFAULT 0 NOT NULL;
