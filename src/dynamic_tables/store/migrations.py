"""From any older schema to the newest.

A migration is a file of SQL in `sql/`, or rather a function that runs it; `MIGRATIONS` is their
order, and a fresh store runs all of them. A store keeps the number of migrations it has seen.
Published files never change: to change `schema.py`, append a file that makes the difference. A test
compares what the files make with what `schema.py` says, on both databases.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from string import Template

from sqlalchemy import Connection, Engine, inspect, select

from dynamic_tables.errors import SetupError
from dynamic_tables.reasons import Reason
from dynamic_tables.store import schema
from dynamic_tables.store.engine import lock_for_migration, masked, reading, upsert, writing

Migration = Callable[[Connection], None]

# The words of the files that are not the same everywhere.
_WORDS = {
    "sqlite": {
        "number": "INTEGER",
        "instant": "VARCHAR(32)",
        "counter": "INTEGER NOT NULL",
        "counting": "AUTOINCREMENT",
    },
    "postgresql": {
        "number": "BIGINT",
        "instant": "TIMESTAMP WITH TIME ZONE",
        "counter": "BIGSERIAL",
        "counting": "",
    },
}


def _file(name: str) -> Migration:
    """The migration that runs a file, one statement after another."""

    def run(connection: Connection) -> None:
        text = files("dynamic_tables.store").joinpath("sql", f"{name}.sql").read_text("utf-8")
        filled = Template(text).substitute(_WORDS[connection.dialect.name])
        for statement in filled.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)

    return run


MIGRATIONS: tuple[Migration, ...] = (
    _file("001_tables"),
    _file("002_queue"),
    _file("003_subtasks"),
    _file("004_handed_back"),
    _file("005_history"),
    _file("006_rejected"),
)


def migrate(engine: Engine, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
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
