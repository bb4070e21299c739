"""The tables of the store. What must always hold is a constraint here, not an `if` elsewhere."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

from dynamic_tables.store.types import Json, Message, Number, UtcTime

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

schema_version = Table(
    "schema_version",
    metadata,
    Column("row_no", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    CheckConstraint("row_no = 1", name="one_row"),  # a store has one version
)

dynamic_tables = Table(
    "dynamic_tables",
    metadata,
    Column("table_id", Text, primary_key=True),
    Column("name_key", Text, nullable=False, unique=True),  # one table a name, whatever its case
    Column("name", Text, nullable=False),
    Column("definition", Json, nullable=False),
    Column("revision", Integer, nullable=False),  # the definition's; only grows
    Column("fingerprint", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("suspended_because", Message),
    Column("created_at", UtcTime, nullable=False),
    # The standing build, null until the table is loaded.
    Column("sequence", Number),
    Column("version", Number),
    Column("cut", Json),
    Column("pins", Json),
    Column("build_fingerprint", Text),
    # By the database's clock; a failure is forgotten when a refresh succeeds.
    Column("refreshed_at", UtcTime),
    Column("seen_at", UtcTime),  # when a schedule last looked at its base tables
    Column("behind_since", UtcTime),  # the first change it had not read then; null: none
    Column("failed_at", UtcTime),
    Column("failed_reason", Text),
    Column("failed_versions", Json),  # the base tables' versions that it failed with
    CheckConstraint("status IN ('active', 'suspended')", name="status"),
    CheckConstraint("failures >= 0", name="failures"),
    CheckConstraint("sequence >= 0 AND version >= 0", name="numbers"),
    # A build stands whole or not at all.
    CheckConstraint(
        "(sequence IS NULL AND version IS NULL AND cut IS NULL AND pins IS NULL"
        " AND build_fingerprint IS NULL) OR (sequence IS NOT NULL AND version IS NOT NULL"
        " AND cut IS NOT NULL AND pins IS NOT NULL AND build_fingerprint IS NOT NULL)",
        name="whole_build",
    ),
)


def _of_table(*, key: bool = False) -> Column[str]:
    """The owning table; what belongs to it goes with it."""
    owner = ForeignKey(dynamic_tables.c.table_id, ondelete="CASCADE")
    return Column("table_id", Text, owner, primary_key=key, nullable=False)


dependencies = Table(
    "dependencies",
    metadata,
    _of_table(key=True),
    Column("source_name", Text, primary_key=True),
    # No ON DELETE: a parent cannot disappear under a child.
    Column("dynamic_id", Text, ForeignKey(dynamic_tables.c.table_id), index=True),
    CheckConstraint("dynamic_id <> table_id", name="not_itself"),
)

builds = Table(
    "builds",
    metadata,
    Column("build_no", Number, primary_key=True, autoincrement=True),
    _of_table(),
    Column("sequence", Number, nullable=False),
    Column("version", Number, nullable=False),
    Column("cut", Json, nullable=False),
    Column("pins", Json, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("is_data", Boolean, nullable=False),  # has a Delta commit of its own (not no_data)
    Column("refresh_id", Text),  # null: found in the lake
    Column("recorded_at", UtcTime, nullable=False),
    sqlite_autoincrement=True,  # numbers of deleted builds do not come back
)
Index("builds_of_table", builds.c.table_id, builds.c.build_no)
# A number is recorded once: n never means two commits.
Index(
    "one_data_build_per_sequence",
    builds.c.table_id,
    builds.c.sequence,
    unique=True,
    sqlite_where=text("is_data"),
    postgresql_where=text("is_data"),
)

source_snapshots = Table(
    "source_snapshots",
    metadata,
    # One row a direct source of a recorded build.
    Column(
        "build_no",
        Number,
        ForeignKey(builds.c.build_no, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("dynamic_table", Text, nullable=False),
    Column("source", Text, primary_key=True),
    Column("source_id", Text, nullable=False),
    Column("snapshot_id", Number, nullable=False),  # the source's Delta version
    _of_table(),
    Column("sequence", Number, nullable=False),
    Column("version", Number, nullable=False),
    Column("refresh_id", Text),
    Column("recorded_at", UtcTime, nullable=False),
)
Index("source_snapshots_of_table", source_snapshots.c.table_id)

refresh_intents = Table(
    "refresh_intents",
    metadata,
    _of_table(key=True),  # at most one open intent a table
    Column("sequence", Number, nullable=False),
    Column("standing", Number),  # the standing number when it was opened
    Column("refresh_id", Text, nullable=False),
    Column("cut", Json, nullable=False),
    Column("pins", Json, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("opened_at", UtcTime, nullable=False),
    Column("slicing", Json),  # how it is shared among workers; null: it is not
    # An intent is about the future (a null `standing` passes).
    CheckConstraint("sequence > standing", name="after_standing"),
    CheckConstraint("sequence >= 0", name="sequence"),
)

claim_tokens = Table(
    "claim_tokens",
    metadata,
    Column("row_no", Integer, primary_key=True, autoincrement=False),
    Column("last", Number, nullable=False),  # tokens grow over all tables and are never given twice
    CheckConstraint("row_no = 1", name="one_row"),
)

refresh_claims = Table(
    "refresh_claims",
    metadata,
    _of_table(key=True),  # one live claim a table
    Column("token", Number, nullable=False, unique=True),
    Column("owner", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Number, nullable=False),
    Column("refresh_id", Text, nullable=False),
    Column("claimed_at", UtcTime, nullable=False),
    Column("heartbeat_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("mode", Text, nullable=False, server_default=text("'single'")),
    Column("subtasks_total", Integer),  # of a coordinator
    Column("subtasks_completed", Integer),
    CheckConstraint("expires_at >= heartbeat_at", name="expiry"),
    CheckConstraint("mode IN ('single', 'coordinator')", name="mode"),
)

refresh_subtasks = Table(
    "refresh_subtasks",
    metadata,
    # The slices of an open intent go with it.
    Column(
        "table_id",
        Text,
        ForeignKey(refresh_intents.c.table_id, ondelete="CASCADE"),
        primary_key=True,
        nullable=False,
    ),
    Column("slice_no", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),  # 1: beside a slow worker
    Column("sequence", Number, nullable=False),
    Column("refresh_id", Text, nullable=False),
    Column("dynamic_table", Text, nullable=False),
    Column("subtask_type", Text, nullable=False),
    Column("subtask_data", Json, nullable=False),
    Column("status", Text, nullable=False),
    Column("token", Number, unique=True),
    Column("claimed_by", Text),
    Column("host", Text),
    Column("pid", Number),
    Column("claimed_at", UtcTime),
    Column("heartbeat_at", UtcTime),
    Column("expires_at", UtcTime),
    Column("retries", Integer, nullable=False, server_default=text("0")),
    Column("reason", Text),  # of the last error
    Column("error", Message),
    Column("result_location", Text),
    Column("result_rows", Number),
    Column("checksum", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("completed_at", UtcTime),
    CheckConstraint("attempt IN (0, 1)", name="attempt"),
    CheckConstraint("retries >= 0", name="retries"),
    CheckConstraint("subtask_type IN ('hash_range', 'modulo', 'partition')", name="subtask_type"),
    CheckConstraint("status IN ('pending', 'claimed', 'completed', 'failed')", name="status"),
    CheckConstraint(
        "status <> 'claimed' OR (token IS NOT NULL AND claimed_by IS NOT NULL"
        " AND expires_at IS NOT NULL)",
        name="held",
    ),
    CheckConstraint(
        "status <> 'completed' OR (result_location IS NOT NULL AND result_rows IS NOT NULL"
        " AND checksum IS NOT NULL AND completed_at IS NOT NULL)",
        name="result",
    ),
    CheckConstraint("status <> 'failed' OR error IS NOT NULL", name="told"),
)
# The first result of a slice wins.
Index(
    "one_result_per_slice",
    refresh_subtasks.c.table_id,
    refresh_subtasks.c.slice_no,
    unique=True,
    sqlite_where=text("status = 'completed'"),
    postgresql_where=text("status = 'completed'"),
)
Index("subtasks_by_status", refresh_subtasks.c.status, refresh_subtasks.c.created_at)

pending_refreshes = Table(
    "pending_refreshes",
    metadata,
    _of_table(key=True),  # requests for one table melt together
    Column("request_no", Number, nullable=False, unique=True),  # the order of the queue
    Column("refresh_id", Text, nullable=False),  # shared by all tables that go to one cut
    Column("trigger", Text, nullable=False, quote=True),
    Column("cut", Json, nullable=False),  # of the base tables
    Column("behind_since", UtcTime),  # the first change that the table has not read
    Column("requested_at", UtcTime, nullable=False),
    Column("token", Number, unique=True),  # of the claim that works on it; null: waiting
    Column("not_before", UtcTime),  # who took it handed it back; null: at once
    Column("returned", Integer, nullable=False, server_default=text("0")),  # so often
)

workers = Table(
    "workers",
    metadata,
    Column("owner", Text, primary_key=True),
    Column(
        "worker_no", Number, nullable=False, unique=True
    ),  # the smallest alive decides what is due
    Column("host", Text, nullable=False),
    Column("pid", Number, nullable=False),
    Column("doing", Message),  # what it works on; null: idle
    Column("started_at", UtcTime, nullable=False),
    Column("heartbeat_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    CheckConstraint("expires_at >= heartbeat_at", name="expiry"),
)

refresh_history = Table(
    "refresh_history",
    metadata,
    Column("history_no", Number, primary_key=True, autoincrement=True),
    Column("refresh_id", Text, nullable=False),
    Column("dynamic_table", Text, nullable=False),
    Column(
        "name_parts", Json, nullable=False, info={"internal": True}
    ),  # the printed name, exactly
    Column("table_id", Text, nullable=False),  # no foreign key: history outlives its table
    Column("action", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("strategy", Text),
    Column("reason", Text, nullable=False),
    Column("sequence", Number),
    Column("version", Number),
    Column("cut_from", Json),
    Column("cut", Json),
    Column("pins", Json, nullable=False),
    Column("rows_inserted", Number),
    Column("rows_updated", Number),
    Column("rows_deleted", Number),
    Column("bytes_read", Number),
    Column("files_read", Number),
    Column("bytes_written", Number),
    Column("files_written", Number),
    Column("spark_jobs", Number),
    Column("cardinality_ratio", Float),
    Column("estimates", Json),
    Column("started_at", UtcTime, nullable=False),
    Column("duration_ms", Number, nullable=False),
    Column("steps_ms", Json, nullable=False),
    Column("trigger", Text, nullable=False, quote=True),
    Column("error", Message),
    Column("note", Message),
    Column("behind_ms", Number),  # how far the table had fallen behind when it was refreshed
    Column("slices", Integer),  # that several workers computed; null: one did it all
    Column("rejected", Json),  # strategies that were not taken, and why; null: older than this
    sqlite_autoincrement=True,
)
Index("history_of_table", refresh_history.c.table_id, refresh_history.c.started_at)
Index("history_as_recorded", refresh_history.c.table_id, refresh_history.c.history_no)
Index("history_by_time", refresh_history.c.started_at)

registry = Table(
    "registry",
    metadata,
    Column("name_key", Text, primary_key=True),  # one object a name
    Column("name", Json, nullable=False),
    Column("kind", Text, nullable=False),
    Column("location", Text),
    Column("text", Text),
    Column("extra", Json, nullable=False),
    CheckConstraint("kind IN ('table', 'view', 'schema')", name="kind"),
)

QUERYABLE = {
    table.name: table
    for table in (
        dynamic_tables,
        dependencies,
        source_snapshots,
        refresh_history,
        refresh_claims,
        refresh_subtasks,
        pending_refreshes,
        workers,
    )
}
