"""What the database is, and what we may do there."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, select

from dynamic_tables.store import schema
from dynamic_tables.store.engine import open_engine, reading

OLDEST_POSTGRESQL = (12, 0)  # older ones are no longer maintained
NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")
SEQUENCES = ("builds_build_no_seq", "refresh_history_history_no_seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The database behind a store."""

    name: str
    too_old: bool
    missing: tuple[str, ...]  # rights that we need and do not have, e.g. "UPDATE on workers"


def look_at_server(url: str | Path) -> Server:
    """What database it is, and which rights are missing there, also if it cannot be opened."""
    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            return look(connection)
    finally:
        engine.dispose()


def look(connection: Connection) -> Server:
    if connection.dialect.name != "postgresql":
        return Server(name=f"SQLite {sqlite3.sqlite_version}", too_old=False, missing=())
    version = connection.dialect.server_version_info or ()
    return Server(
        name=f"PostgreSQL {'.'.join(map(str, version))}",
        too_old=version < OLDEST_POSTGRESQL,
        missing=_missing(connection),
    )


def _missing(connection: Connection) -> tuple[str, ...]:
    """CREATE is for the migrations, the rest for every day; of tables that are not there yet
    PostgreSQL answers NULL."""
    here = connection.execute(select(func.current_schema())).scalar_one()
    if here is None:
        return ("USAGE on schema public",)
    may_create = connection.execute(select(func.has_schema_privilege(here, "CREATE"))).scalar_one()
    lacking = [] if may_create else [f"CREATE on schema {here}"]
    for table in schema.metadata.sorted_tables:
        found = func.to_regclass(table.name)
        rights = [func.has_table_privilege(found, right) for right in NEEDED]
        held = connection.execute(select(*rights)).one()
        lacking += [
            f"{right} on {table.name}"
            for right, has in zip(NEEDED, held, strict=True)
            if has is False
        ]
    for sequence in SEQUENCES:
        may_use = select(func.has_sequence_privilege(func.to_regclass(sequence), "USAGE"))
        if connection.execute(may_use).scalar_one() is False:
            lacking.append(f"USAGE on {sequence}")
    return tuple(lacking)
