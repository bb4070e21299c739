"""URLs, transactions and the clock: the one place that knows which database it talks to."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    func,
    make_url,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from dynamic_tables.errors import SetupError
from dynamic_tables.reasons import Reason
from dynamic_tables.store import schema
from dynamic_tables.store.types import UtcTime

BUSY_S = 30.0  # our transactions take milliseconds: who waits this long waits for a stopped process
WAL_RETRY_S = 0.01  # switching to WAL does not honour the busy timeout
CHANNEL = "dynamic_tables"  # of NOTIFY
NO_PRIVILEGE = "42501"  # PostgreSQL: insufficient_privilege
MIGRATION_LOCK = 4_918_231_007  # any constant: PostgreSQL's advisory lock for migrations
PATIENCE = {  # of PostgreSQL's clients: a host that is gone, a process that is stopped
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # ms
    "options": "-c idle_in_transaction_session_timeout=15s -c lock_timeout=30s",
}
LIBPQ = re.compile(r"\b(host|user|password|dbname)\s*=")  # words of libpq instead of a URL
SERVER = re.compile(r"postgres\w*(\+\w+)?:")  # a URL with a slash too few
URL_HINT = "write a path, sqlite:///path or postgresql://user@host/database"


class database_now(FunctionElement[datetime]):  # noqa: N801  it reads as SQL
    """The database's clock, with fractions of a second."""

    type = UtcTime()
    inherit_cache = True


@compiles(database_now, "sqlite")
def _now_sqlite(_element: database_now, _compiler: SQLCompiler, **_: Any) -> str:
    # The same width as UtcTime writes: texts of one width compare as instants do.
    return "(strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000+00:00')"


@compiles(database_now, "postgresql")
def _now_postgresql(_element: database_now, _compiler: SQLCompiler, **_: Any) -> str:
    return "clock_timestamp()"


def now(connection: Connection) -> datetime:
    """The database's present instant: claims of all processes expire on this one clock."""
    return connection.execute(select(database_now())).scalar_one()


def open_engine(url: str | Path) -> Engine:
    """An engine for a path, `sqlite:///path` or `postgresql://…`; it connects when first used."""
    resolved = _resolve(str(url))
    if resolved.get_backend_name() == "sqlite":
        return _sqlite_engine(resolved)
    try:
        return create_engine(
            resolved,
            hide_parameters=True,
            pool_pre_ping=True,
            connect_args={k: v for k, v in PATIENCE.items() if k not in resolved.query},
        )
    except ImportError:
        raise SetupError(
            "the PostgreSQL driver is not installed",
            reason=Reason.STORE_BROKEN,
            about=masked(resolved),
            hint="pip install 'spark-dynamic-tables[postgres]'",
        ) from None


def store_is_there(url: str | Path) -> bool:
    """Whether a file can be opened that somebody made before; a server has to be asked itself."""
    resolved = _resolve(str(url))
    return resolved.get_backend_name() != "sqlite" or Path(str(resolved.database)).is_file()


def masked(url: URL) -> str:
    """The URL as it may be shown: passwords are stars, those among the parameters too."""
    secret = {key: "***" for key in url.query if "password" in key.lower()}
    shown = url.set(drivername=url.get_backend_name()).update_query_dict(secret)
    return shown.render_as_string(hide_password=True)


def _resolve(given: str) -> URL:
    if "://" not in given:
        if LIBPQ.search(given) or SERVER.match(given):
            raise _bad_url("…")  # taken for a path, they would show the password
        return URL.create("sqlite+pysqlite", database=str(Path(given).absolute()))
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):  # their messages may quote the password
        raise _bad_url(given) from None
    if url.drivername in ("sqlite", "sqlite+pysqlite") and url.database not in (
        None,
        "",
        ":memory:",
    ):
        return url.set(drivername="sqlite+pysqlite", database=str(Path(url.database).absolute()))
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise _bad_url(given)


def _bad_url(given: str) -> SetupError:
    scheme = given.split("://", 1)[0]
    return SetupError(
        "not the address of a store",
        reason=Reason.STORE_BROKEN,
        about=f"{scheme}://…",
        hint=URL_HINT,
    )


def _sqlite_engine(url: URL) -> Engine:
    folder = Path(str(url.database)).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the folder of the store cannot be made: {error.strerror}",
            reason=Reason.NO_PERMISSION,
            about=str(folder),
            hint="choose a folder that you may write to",
        ) from error
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(WAL_RETRY_S)
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # Who reads first and writes later would fail as stale: writers queue up at BEGIN.
    reads_only = connection.get_execution_options().get("reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")


@contextmanager
def reading(engine: Engine) -> Generator[Connection, None, None]:
    """One transaction that does not write, and waits for no writer."""
    with _speaking(engine), engine.connect() as connection:
        connection.execution_options(reads_only=True)
        with connection.begin():
            yield connection


@contextmanager
def writing(engine: Engine) -> Generator[Connection, None, None]:
    """One transaction that writes, all of it or nothing."""
    with _speaking(engine), engine.begin() as connection:
        yield connection


def lock_for_migration(connection: Connection) -> None:
    """Let one process migrate; on SQLite the transaction itself excludes the others."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))


def upsert(connection: Connection, table: Table, row: dict[str, Any]) -> None:
    """Insert the row, or replace the one with the same primary key."""
    keys = [column.name for column in table.primary_key]
    others = {name: value for name, value in row.items() if name not in keys}
    insert_or_update(connection, table, row, others)


def insert_or_update(
    connection: Connection,
    table: Table,
    row: dict[str, Any],
    changes: dict[str, Any],
    *,
    where: ColumnElement[bool] | None = None,
) -> None:
    """Insert the row; if one has its primary key, and `where` holds, change that one."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table).values(row)
    keys = [column.name for column in table.primary_key]
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=changes, where=where)
    )


def next_number(connection: Connection) -> int:
    """One counter for everything that only grows: claims, requests, workers.

    It stays locked until the transaction ends, so that it comes after all other locks.
    """
    tokens = schema.claim_tokens
    connection.execute(update(tokens).values(last=tokens.c.last + 1))
    return connection.execute(select(tokens.c.last)).scalar_one()


def wake_others(connection: Connection) -> None:
    """Tell workers that there may be something to do, once this transaction is committed."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(CHANNEL, "")))


@contextmanager
def _speaking(engine: Engine) -> Generator[None, None, None]:
    """Turn the errors of driver and connection pool into ours; broken constraints are the caller's
    to explain."""
    try:
        yield
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        raise _store_error(error, engine.url) from None


WAYS_IN = (  # what PostgreSQL's driver says of a connection that it could not make
    ("password", "check user and password, in DYNAMIC_TABLES_STORE or ~/.pgpass"),
    ("does not exist", "check the names in the store's URL; CREATE DATABASE makes a database"),
    ("resolve host", "check the host in the store's URL"),
    ("refused", "start the server, or check host and port in the store's URL"),
)


def _store_error(error: SQLAlchemyError, url: URL) -> SetupError:
    cause = getattr(error, "orig", None) or error  # the driver's own, if it spoke at all
    code = getattr(cause, "sqlite_errorname", "")
    reason, hint = Reason.STORE_BROKEN, "`dynamic-tables doctor` checks the store"
    if code.startswith("SQLITE_FULL"):
        reason, hint = Reason.DISK_FULL, "free some space on the store's disk, then repeat"
    elif code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        reason, hint = Reason.NO_PERMISSION, "the file and its folder must be writable"
    elif code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        hint = (
            "move the file away; `dynamic-tables doctor --rebuild` makes it anew from the lake, "
            "or bring back a copy"
        )
    elif code.startswith("SQLITE_BUSY"):
        hint = (
            f"another process has held the store for {BUSY_S:.0f} s: is one stopped or suspended?"
        )
    elif getattr(cause, "sqlstate", None) == NO_PRIVILEGE:
        reason, hint = Reason.NO_PERMISSION, "`dynamic-tables doctor` lists the rights it needs"
    message = str(cause).strip()
    if not code and getattr(cause, "sqlstate", None) is None:  # no server spoke yet
        hint = next((way_out for words, way_out in WAYS_IN if words in message), hint)
    if url.password:
        message = message.replace(str(url.password), "***")
    return SetupError(
        f"the store does not answer as it should: {message}",
        reason=reason,
        about=masked(url),
        hint=hint,
    )
