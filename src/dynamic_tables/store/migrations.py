"""From any older schema to the newest.

A migration is a function; `MIGRATIONS` is their order; a fresh store runs all of them. A store
keeps the number of migrations it has seen. Published migrations never change: to change
`schema.py`, first freeze what `_first` creates (the golden DDL in the tests has it), then append a
migration that makes the difference.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, Engine, inspect, select

from dynamic_tables.errors import SetupError
from dynamic_tables.reasons import Reason
from dynamic_tables.store import schema
from dynamic_tables.store.engine import lock_for_migration, masked, reading, upsert, writing


def _first(connection: Connection) -> None:
    schema.metadata.create_all(connection, checkfirst=False)
    connection.execute(schema.claim_tokens.insert().values(row_no=1, last=0))


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_first,)


def migrate(
    engine: Engine, migrations: tuple[Callable[[Connection], None], ...] = MIGRATIONS
) -> None:
    """Bring the store to the newest version in one transaction; do nothing if it is there."""
    with reading(engine) as connection:
        version = stored_version(connection)
    _refuse_newer(version, len(migrations), engine)
    if version == len(migrations):
        return
    with writing(engine) as connection:
        lock_for_migration(connection)
        version = stored_version(connection)  # another process may have migrated meanwhile
        _refuse_newer(version, len(migrations), engine)
        for migration in migrations[version:]:
            migration(connection)
        upsert(connection, schema.schema_version, {"row_no": 1, "version": len(migrations)})


def stored_version(connection: Connection) -> int:
    """How many migrations the store has seen; 0 for an empty database."""
    if not inspect(connection).has_table(schema.schema_version.name):
        return 0
    return connection.execute(select(schema.schema_version.c.version)).scalar_one()


def _refuse_newer(version: int, newest: int, engine: Engine) -> None:
    if version > newest:
        raise SetupError(
            f"the store has schema version {version}, this program knows versions up to {newest}",
            reason=Reason.STORE_BROKEN,
            about=masked(engine.url),
            hint="pip install --upgrade spark-dynamic-tables",
        )
