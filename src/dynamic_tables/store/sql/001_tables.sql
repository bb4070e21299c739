-- Definitions, builds, intents, claims, history, the registry.

CREATE TABLE schema_version (
    row_no INTEGER NOT NULL,
    version INTEGER NOT NULL,
    CONSTRAINT pk_schema_version PRIMARY KEY (row_no),
    CONSTRAINT ck_schema_version_one_row CHECK (row_no = 1)
);

CREATE TABLE dynamic_tables (
    table_id TEXT NOT NULL,
    name_key TEXT NOT NULL,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    revision INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    status TEXT NOT NULL,
    failures INTEGER DEFAULT 0 NOT NULL,
    suspended_because TEXT,
    created_at $instant NOT NULL,
    sequence $number,
    version $number,
    cut TEXT,
    pins TEXT,
    build_fingerprint TEXT,
    CONSTRAINT pk_dynamic_tables PRIMARY KEY (table_id),
    CONSTRAINT ck_dynamic_tables_status CHECK (status IN ('active', 'suspended')),
    CONSTRAINT ck_dynamic_tables_failures CHECK (failures >= 0),
    CONSTRAINT ck_dynamic_tables_numbers CHECK (sequence >= 0 AND version >= 0),
    CONSTRAINT ck_dynamic_tables_whole_build CHECK (
        (sequence IS NULL AND version IS NULL AND cut IS NULL AND pins IS NULL
            AND build_fingerprint IS NULL)
        OR (sequence IS NOT NULL AND version IS NOT NULL AND cut IS NOT NULL AND pins IS NOT NULL
            AND build_fingerprint IS NOT NULL)
    ),
    CONSTRAINT uq_dynamic_tables_name_key UNIQUE (name_key)
);

CREATE TABLE claim_tokens (
    row_no INTEGER NOT NULL,
    last $number NOT NULL,
    CONSTRAINT pk_claim_tokens PRIMARY KEY (row_no),
    CONSTRAINT ck_claim_tokens_one_row CHECK (row_no = 1)
);

CREATE TABLE refresh_history (
    history_no $counter CONSTRAINT pk_refresh_history PRIMARY KEY $counting,
    refresh_id TEXT NOT NULL,
    dynamic_table TEXT NOT NULL,
    name_parts TEXT NOT NULL,
    table_id TEXT NOT NULL,
    action TEXT NOT NULL,
    outcome TEXT NOT NULL,
    strategy TEXT,
    reason TEXT NOT NULL,
    sequence $number,
    version $number,
    cut_from TEXT,
    cut TEXT,
    pins TEXT NOT NULL,
    rows_inserted $number,
    rows_updated $number,
    rows_deleted $number,
    bytes_read $number,
    files_read $number,
    bytes_written $number,
    files_written $number,
    spark_jobs $number,
    cardinality_ratio FLOAT,
    estimates TEXT,
    started_at $instant NOT NULL,
    duration_ms $number NOT NULL,
    steps_ms TEXT NOT NULL,
    "trigger" TEXT NOT NULL,
    error TEXT,
    note TEXT
);

CREATE INDEX history_of_table ON refresh_history (table_id, started_at);

CREATE INDEX history_by_time ON refresh_history (started_at);

CREATE TABLE registry (
    name_key TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    location TEXT,
    text TEXT,
    extra TEXT NOT NULL,
    CONSTRAINT pk_registry PRIMARY KEY (name_key),
    CONSTRAINT ck_registry_kind CHECK (kind IN ('table', 'view', 'schema'))
);

CREATE TABLE dependencies (
    table_id TEXT NOT NULL,
    source_name TEXT NOT NULL,
    dynamic_id TEXT,
    CONSTRAINT pk_dependencies PRIMARY KEY (table_id, source_name),
    CONSTRAINT ck_dependencies_not_itself CHECK (dynamic_id <> table_id),
    CONSTRAINT fk_dependencies_table_id FOREIGN KEY (table_id) REFERENCES dynamic_tables (table_id) ON DELETE CASCADE,
    CONSTRAINT fk_dependencies_dynamic_id FOREIGN KEY (dynamic_id) REFERENCES dynamic_tables (table_id)
);

CREATE INDEX dependencies_dynamic_id ON dependencies (dynamic_id);

CREATE TABLE builds (
    build_no $counter CONSTRAINT pk_builds PRIMARY KEY $counting,
    table_id TEXT NOT NULL,
    sequence $number NOT NULL,
    version $number NOT NULL,
    cut TEXT NOT NULL,
    pins TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    is_data BOOLEAN NOT NULL,
    refresh_id TEXT,
    recorded_at $instant NOT NULL,
    CONSTRAINT fk_builds_table_id FOREIGN KEY (table_id) REFERENCES dynamic_tables (table_id) ON DELETE CASCADE
);

CREATE INDEX builds_of_table ON builds (table_id, build_no);

CREATE UNIQUE INDEX one_data_build_per_sequence ON builds (table_id, sequence) WHERE is_data;

CREATE TABLE refresh_intents (
    table_id TEXT NOT NULL,
    sequence $number NOT NULL,
    standing $number,
    refresh_id TEXT NOT NULL,
    cut TEXT NOT NULL,
    pins TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    opened_at $instant NOT NULL,
    CONSTRAINT pk_refresh_intents PRIMARY KEY (table_id),
    CONSTRAINT ck_refresh_intents_after_standing CHECK (sequence > standing),
    CONSTRAINT ck_refresh_intents_sequence CHECK (sequence >= 0),
    CONSTRAINT fk_refresh_intents_table_id FOREIGN KEY (table_id) REFERENCES dynamic_tables (table_id) ON DELETE CASCADE
);

CREATE TABLE refresh_claims (
    table_id TEXT NOT NULL,
    token $number NOT NULL,
    owner TEXT NOT NULL,
    host TEXT NOT NULL,
    pid $number NOT NULL,
    refresh_id TEXT NOT NULL,
    claimed_at $instant NOT NULL,
    heartbeat_at $instant NOT NULL,
    expires_at $instant NOT NULL,
    CONSTRAINT pk_refresh_claims PRIMARY KEY (table_id),
    CONSTRAINT ck_refresh_claims_expiry CHECK (expires_at >= heartbeat_at),
    CONSTRAINT fk_refresh_claims_table_id FOREIGN KEY (table_id) REFERENCES dynamic_tables (table_id) ON DELETE CASCADE,
    CONSTRAINT uq_refresh_claims_token UNIQUE (token)
);

CREATE TABLE source_snapshots (
    build_no $number NOT NULL,
    dynamic_table TEXT NOT NULL,
    source TEXT NOT NULL,
    source_id TEXT NOT NULL,
    snapshot_id $number NOT NULL,
    table_id TEXT NOT NULL,
    sequence $number NOT NULL,
    version $number NOT NULL,
    refresh_id TEXT,
    recorded_at $instant NOT NULL,
    CONSTRAINT pk_source_snapshots PRIMARY KEY (build_no, source),
    CONSTRAINT fk_source_snapshots_build_no FOREIGN KEY (build_no) REFERENCES builds (build_no) ON DELETE CASCADE,
    CONSTRAINT fk_source_snapshots_table_id FOREIGN KEY (table_id) REFERENCES dynamic_tables (table_id) ON DELETE CASCADE
);

CREATE INDEX source_snapshots_of_table ON source_snapshots (table_id);

INSERT INTO claim_tokens (row_no, last) VALUES (1, 0);
