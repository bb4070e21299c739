"""Addresses, migrations, several processes at once, and death in the middle."""

from __future__ import annotations

import multiprocessing
import signal
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import store_builders as make
import store_processes
from sqlalchemy import Connection, create_mock_engine, inspect, text
from test_store_refreshes import everything

from dynamic_tables.errors import SetupError
from dynamic_tables.reasons import Reason
from dynamic_tables.store import Store, open_store, schema
from dynamic_tables.store.engine import open_engine, reading
from dynamic_tables.store.migrations import MIGRATIONS, migrate, stored_version

GOLDEN = Path(__file__).parent / "golden_schema_1.sql"


def ddl() -> str:
    """What `create_all` says on SQLite, one statement a line, sorted."""
    lines: list[str] = []

    def keep(statement: Any, *_args: object, **_kw: object) -> None:
        compiled = str(statement.compile(dialect=engine.dialect))
        lines.append(" ".join(compiled.split()) + "\n")

    engine = create_mock_engine("sqlite://", keep)
    schema.metadata.create_all(engine, checkfirst=False)
    return "".join(sorted(lines))


def test_a_path_and_a_url_are_the_same_store(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "st?re #1.db"
    with open_store(path) as store:
        store.create_table(make.definition())
    assert path.exists()
    plain = tmp_path / "plain.db"
    with open_store(str(plain)) as store:
        store.create_table(make.definition())
    with open_store(f"sqlite:///{plain}") as store:
        assert len(store.tables()) == 1


def test_sqlite_is_set_up_for_several_processes(sqlite_path: Path) -> None:
    with open_store(sqlite_path) as store, store._engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar_one() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar_one() == 30_000


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://u:s3cret@h/d",
        "postgresql://u:s3cret@h:s3cret/d",
        "s3cret://",
    ],
)
def test_a_bad_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SetupError) as caught:
        open_store(url)
    assert caught.value.reason is Reason.STORE_BROKEN
    assert "postgresql://" in str(caught.value.hint)
    if not url.startswith("s3cret"):
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret@127.0.0.1:1/d?connect_timeout=1",
        "postgresql://127.0.0.1:1/d?user=u&password=s3cret&sslpassword=s3cret&connect_timeout=1",
    ],
)
def test_an_unreachable_server_is_named_without_its_password(url: str) -> None:
    with pytest.raises(SetupError) as caught:  # also where the driver is missing
        open_store(url)
    assert "127.0.0.1" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_what_is_no_database_is_refused(sqlite_path: Path) -> None:
    sqlite_path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(SetupError) as caught:
        open_store(sqlite_path)
    assert caught.value.reason is Reason.STORE_BROKEN
    assert str(sqlite_path) in str(caught.value)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError) as caught:
        open_store(tmp_path / "file" / "store.db")
    assert caught.value.reason is Reason.NO_PERMISSION


def test_a_fresh_schema_is_the_sum_of_the_migrations(url: str) -> None:
    with open_store(url) as store, reading(store._engine) as connection:
        assert stored_version(connection) == len(MIGRATIONS)
        found = inspect(connection)
        assert set(found.get_table_names()) == set(schema.metadata.tables)
        for table in schema.metadata.sorted_tables:
            names = [column["name"] for column in found.get_columns(table.name)]
            assert names == [column.name for column in table.columns], table.name
            indexes = {index["name"] for index in found.get_indexes(table.name)}
            assert {index.name for index in table.indexes} <= indexes


def test_the_first_schema_is_frozen() -> None:
    """If this fails: write a migration, and freeze what `_first` creates."""
    assert GOLDEN.read_text() == ddl()


def test_opening_again_changes_nothing(url: str) -> None:
    with open_store(url) as store:
        store.create_table(make.definition())
    with open_store(url) as store:
        assert len(store.tables()) == 1


def test_only_missing_migrations_run_and_all_or_none(sqlite_path: Path) -> None:
    def second(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE extra (x INTEGER)"))

    def broken(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE more (x INTEGER)"))
        connection.execute(text("SELECT * FROM nowhere"))

    open_store(sqlite_path).close()
    engine = open_engine(sqlite_path)
    with pytest.raises(SetupError):
        migrate(engine, (*MIGRATIONS, second, broken))
    with reading(engine) as connection:
        assert stored_version(connection) == len(MIGRATIONS)
        assert not inspect(connection).has_table("extra")
    migrate(engine, (*MIGRATIONS, second))
    migrate(engine, (*MIGRATIONS, second))
    with reading(engine) as connection:
        assert stored_version(connection) == len(MIGRATIONS) + 1
        assert inspect(connection).has_table("extra")
    engine.dispose()


def test_a_newer_store_is_refused_and_left_alone(sqlite_path: Path) -> None:
    open_store(sqlite_path).close()
    with sqlite3.connect(sqlite_path) as raw:
        raw.execute("UPDATE schema_version SET version = 99")
    raw.close()
    with pytest.raises(SetupError) as caught:
        open_store(sqlite_path)
    assert caught.value.reason is Reason.STORE_BROKEN
    assert "99" in caught.value.message
    assert "upgrade" in str(caught.value.hint)


def test_processes_may_open_a_new_store_at_once(url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=spawn) as processes:
        assert list(processes.map(store_processes.open_and_count, [url] * 8, timeout=60)) == [0] * 8


def test_death_before_the_commit_leaves_the_old_state(url: str, store: Store, table: str) -> None:
    first = store.claim(table, "refresh-1", **make.claimant())
    store.record(first, make.record(1), make.build(1), close_intent=None, failures="reset")
    store.release(first)
    before = everything(store)
    child = multiprocessing.get_context("spawn").Process(
        target=store_processes.die_before_commit, args=(url,)
    )
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    after = everything(store)
    assert after.pop("intent") == make.intent(2, at=8)  # committed before
    assert len(after.pop("refresh_claims")[1]) == 1
    assert all(before[name] == value for name, value in after.items())
    state = store.table_by_id(table)
    assert state is not None
    assert (state.build, state.failures) == (make.build(1), 0)
    successor = store.claim(
        table, "refresh-2", **make.claimant(), is_owner_dead=lambda _host, pid: pid == child.pid
    )
    store.record(successor, make.record(2), make.build(2), close_intent=2, failures="reset")
