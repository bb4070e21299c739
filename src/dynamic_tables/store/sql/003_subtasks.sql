-- One table refreshed by several workers.

ALTER TABLE refresh_claims ADD COLUMN mode TEXT NOT NULL DEFAULT 'single' CONSTRAINT ck_refresh_claims_mode CHECK (mode IN ('single', 'coordinator'));

ALTER TABLE refresh_claims ADD COLUMN subtasks_total INTEGER;

ALTER TABLE refresh_claims ADD COLUMN subtasks_completed INTEGER;

ALTER TABLE refresh_intents ADD COLUMN slicing TEXT;

ALTER TABLE refresh_history ADD COLUMN slices INTEGER;

CREATE TABLE refresh_subtasks (
    table_id TEXT NOT NULL,
    slice_no INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    sequence $number NOT NULL,
    refresh_id TEXT NOT NULL,
    dynamic_table TEXT NOT NULL,
    subtask_type TEXT NOT NULL,
    subtask_data TEXT NOT NULL,
    status TEXT NOT NULL,
    token $number,
    claimed_by TEXT,
    host TEXT,
    pid $number,
    claimed_at $instant,
    heartbeat_at $instant,
    expires_at $instant,
    retries INTEGER DEFAULT 0 NOT NULL,
    reason TEXT,
    error TEXT,
    result_location TEXT,
    result_rows $number,
    checksum TEXT,
    created_at $instant NOT NULL,
    completed_at $instant,
    CONSTRAINT pk_refresh_subtasks PRIMARY KEY (table_id, slice_no, attempt),
    CONSTRAINT fk_refresh_subtasks_table_id FOREIGN KEY (table_id) REFERENCES refresh_intents (table_id) ON DELETE CASCADE,
    CONSTRAINT uq_refresh_subtasks_token UNIQUE (token),
    CONSTRAINT ck_refresh_subtasks_attempt CHECK (attempt IN (0, 1)),
    CONSTRAINT ck_refresh_subtasks_retries CHECK (retries >= 0),
    CONSTRAINT ck_refresh_subtasks_subtask_type CHECK (subtask_type IN ('hash_range', 'modulo', 'partition')),
    CONSTRAINT ck_refresh_subtasks_status CHECK (status IN ('pending', 'claimed', 'completed', 'failed')),
    CONSTRAINT ck_refresh_subtasks_held CHECK (status <> 'claimed' OR (token IS NOT NULL AND claimed_by IS NOT NULL AND expires_at IS NOT NULL)),
    CONSTRAINT ck_refresh_subtasks_result CHECK (status <> 'completed' OR (result_location IS NOT NULL AND result_rows IS NOT NULL AND checksum IS NOT NULL AND completed_at IS NOT NULL)),
    CONSTRAINT ck_refresh_subtasks_told CHECK (status <> 'failed' OR error IS NOT NULL)
);

CREATE UNIQUE INDEX one_result_per_slice ON refresh_subtasks (table_id, slice_no) WHERE status = 'completed';

CREATE INDEX subtasks_by_status ON refresh_subtasks (status, created_at);
