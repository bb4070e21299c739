-- History is read as it was recorded: hosts whose clocks differ wrote it.

CREATE INDEX history_as_recorded ON refresh_history (table_id, history_no);
