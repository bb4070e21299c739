-- Requests, workers, and what a schedule has to remember of each table.

ALTER TABLE dynamic_tables ADD COLUMN refreshed_at $instant;

ALTER TABLE dynamic_tables ADD COLUMN seen_at $instant;

ALTER TABLE dynamic_tables ADD COLUMN behind_since $instant;

ALTER TABLE dynamic_tables ADD COLUMN failed_at $instant;

ALTER TABLE dynamic_tables ADD COLUMN failed_reason TEXT;

ALTER TABLE dynamic_tables ADD COLUMN failed_versions TEXT;

ALTER TABLE refresh_history ADD COLUMN behind_ms $number;

CREATE TABLE pending_refreshes (
    table_id TEXT NOT NULL,
    request_no $number NOT NULL,
    refresh_id TEXT NOT NULL,
    "trigger" TEXT NOT NULL,
    cut TEXT NOT NULL,
    behind_since $instant,
    requested_at $instant NOT NULL,
    token $number,
    CONSTRAINT pk_pending_refreshes PRIMARY KEY (table_id),
    CONSTRAINT uq_pending_refreshes_request_no UNIQUE (request_no),
    CONSTRAINT uq_pending_refreshes_token UNIQUE (token),
    CONSTRAINT fk_pending_refreshes_table_id FOREIGN KEY (table_id) REFERENCES dynamic_tables (table_id) ON DELETE CASCADE
);

CREATE TABLE workers (
    owner TEXT NOT NULL,
    worker_no $number NOT NULL,
    host TEXT NOT NULL,
    pid $number NOT NULL,
    doing TEXT,
    started_at $instant NOT NULL,
    heartbeat_at $instant NOT NULL,
    expires_at $instant NOT NULL,
    CONSTRAINT pk_workers PRIMARY KEY (owner),
    CONSTRAINT uq_workers_worker_no UNIQUE (worker_no),
    CONSTRAINT ck_workers_expiry CHECK (expires_at >= heartbeat_at)
);
