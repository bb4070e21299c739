"""Addresses, migrations, several processes at once, and death in the middle."""

from __future__ import annotations

import re
import signal
import sqlite3
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import store_builders as make
import store_processes
from sqlalchemy import Connection, inspect, text
from store_processes import CONTEXT
from test_store_refreshes import everything

from dynamic_tables import doctor
from dynamic_tables.doctor import _store, _unfinished
from dynamic_tables.errors import SetupError
from dynamic_tables.model import utc_now
from dynamic_tables.reasons import Reason
from dynamic_tables.settings import load_settings
from dynamic_tables.store import Claim, Store, open_store, schema, server
from dynamic_tables.store.engine import open_engine, reading
from dynamic_tables.store.migrations import MIGRATIONS, migrate, stored_version
from postgres import KEYED, PASSWORD, Postgres, with_login

GOLDEN = Path(__file__).with_name("golden_schema_1.sql")


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
        "postgresql:/u:s3cret@h/d",
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


def test_who_cannot_connect_is_told_what_to_check(postgres: Postgres) -> None:
    ways_out = {
        "postgresql://me@127.0.0.1:1/lake?connect_timeout=1": "start the server",
        postgres.url("nowhere"): "CREATE DATABASE",
        with_login(postgres.new_database(), KEYED, "wrong"): "check user and password",
    }
    for url, way_out in ways_out.items():
        with pytest.raises(SetupError) as caught:
            open_store(url)
        assert way_out in str(caught.value.hint), caught.value
    broken = postgres.new_database()
    open_store(broken).close()
    postgres.execute("DROP TABLE workers CASCADE", broken)
    with open_store(broken) as store, pytest.raises(SetupError, match="does not exist") as caught:
        store.workers()
    assert "doctor" in str(caught.value.hint)  # it is no matter of the URL


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


def described(connection: Connection) -> dict[str, Any]:
    """All that the database says about its tables, in an order that does not matter."""
    found = inspect(connection)
    return {
        name: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"], _default(column))
                for column in found.get_columns(name)
            },
            "key": found.get_pk_constraint(name)["constrained_columns"],
            "parents": _by_name(found.get_foreign_keys(name)),
            "unique": _by_name(found.get_unique_constraints(name)),
            "checks": _by_name(found.get_check_constraints(name)),
            "indexes": _by_name(found.get_indexes(name)),
        }
        for name in found.get_table_names()
    }


def _default(column: Any) -> str | None:
    given = column["default"]
    return None if given is None else re.sub(r"\W", "", str(given))


def _by_name(found: Any) -> dict[Any, str]:
    return {item["name"]: str(_plain(item)) for item in found}


def _plain(value: Any) -> Any:
    """Conditions of partial indexes as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return " ".join(str(value).split())


def test_the_sum_of_the_migrations_is_the_schema(url: str, make_url: Callable[[], str]) -> None:
    """If this fails: append a migration that makes the difference."""
    with open_store(url) as store, reading(store._engine) as connection:
        assert stored_version(connection) == len(MIGRATIONS)
        migrated = described(connection)
    plain = open_engine(make_url())
    with plain.begin() as connection:
        schema.metadata.create_all(connection)
        declared = described(connection)
    plain.dispose()
    assert set(migrated) == set(schema.metadata.tables)
    for name, content in declared.items():
        assert migrated[name] == content, name


def test_an_older_store_is_migrated_with_its_content(url: str) -> None:
    engine = open_engine(url)
    migrate(engine, MIGRATIONS[:1])
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO registry (name_key, name, kind, extra)"
                " VALUES ('a', '[\"a\", \"b\"]', 'schema', '{}')"
            )
        )
    engine.dispose()
    with open_store(url) as store, reading(store._engine) as connection:
        assert stored_version(connection) == len(MIGRATIONS)
        assert [entry.name for entry in store.registry_all()] == [("a", "b")]


def test_a_store_that_was_made_before_there_were_files_of_sql(sqlite_path: Path) -> None:
    """The first schema, as it was made then: tables before their indexes."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    with closing(sqlite3.connect(sqlite_path)) as old:
        for line in sorted(lines, key=lambda line: "INDEX" in line):
            old.execute(line)
        old.execute("INSERT INTO schema_version VALUES (1, 1)")
        old.execute("INSERT INTO claim_tokens VALUES (1, 0)")
        old.commit()
    with open_store(sqlite_path) as store:
        store.create_table(make.definition())
        store.request(make.request())
        assert [item.table_id for item in store.pending()] == ["id-by_customer"]


def test_a_pool_without_a_free_connection_is_a_store_that_does_not_answer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url) as store, ExitStack() as held:
        pool: Any = store._engine.pool
        monkeypatch.setattr(pool, "_timeout", 0.01)
        for _ in range(pool.size() + pool._max_overflow):
            held.enter_context(store._engine.connect())
        with pytest.raises(SetupError) as caught:
            store.now()
        assert caught.value.reason is Reason.STORE_BROKEN
        waker, stop = store.waker(), threading.Event()
        waker.sleep(0.05, stop)  # by time alone
        waker.close()


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
    with ProcessPoolExecutor(4, mp_context=CONTEXT) as processes:
        assert list(processes.map(store_processes.open_and_count, [url] * 8, timeout=60)) == [0] * 8


def test_death_before_the_commit_leaves_the_old_state(url: str, store: Store, table: str) -> None:
    first = store.claim(table, "refresh-1", make.claimant())
    store.record(first, make.record(1), make.build(1), close_intent=None, failures="reset")
    store.release(first)
    before = everything(store)
    child = CONTEXT.Process(target=store_processes.die_before_commit, args=(url,))
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
        table, "refresh-2", make.claimant(), is_owner_dead=lambda _host, pid: pid == child.pid
    )
    store.record(successor, make.record(2), make.build(2), close_intent=2, failures="reset")


def test_the_server_tells_what_it_is(store: Store) -> None:
    found = store.server()
    assert found.name.split()[0] in ("SQLite", "PostgreSQL")
    assert (found.too_old, found.missing) == (False, ())


@pytest.mark.parametrize("opens", [True, False], ids=["opens", "does not open"])
def test_doctor_tells_of_a_server_that_is_too_old(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, opens: bool
) -> None:
    """Also if the store cannot be opened, which may be for that very reason."""
    url = postgres.new_database()
    if not opens:
        postgres.execute("CREATE TABLE schema_version (version INT)", url)  # without a row
    monkeypatch.setattr(server, "OLDEST_POSTGRESQL", (99, 0))
    monkeypatch.setattr(doctor, "OLDEST_POSTGRESQL", (99, 0))
    flags = {"store": url, "warehouse": "hdfs://host/lake"}
    checks = {check.name: check for check in _store(load_settings(flags), None)}
    assert checks["store"].ok == opens
    assert not checks["database"].ok
    hint = checks["database"].hint or ""
    assert "PostgreSQL 99 or later is needed" in hint
    assert "--store" in hint


def test_doctor_says_once_that_a_server_does_not_answer() -> None:
    flags = {"store": "postgresql://me@127.0.0.1:1/lake", "warehouse": "hdfs://host/lake"}
    (check,) = _store(load_settings(flags), None)
    assert (check.name, check.ok) == ("store", False)


@pytest.mark.parametrize("made", [False, True], ids=["new", "made"])
def test_doctor_names_rights_where_the_store_cannot_be_opened(
    postgres: Postgres, made: bool
) -> None:
    """Since PostgreSQL 15 nobody but its owner may make tables in a new database."""
    url = postgres.new_database()
    postgres.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC", url)
    if made:
        open_store(url).close()
    role = f"stranger_{uuid.uuid4().hex}"
    postgres.execute(f"CREATE ROLE {role} LOGIN")
    flags = {"store": url.replace("postgres@", f"{role}@"), "warehouse": "hdfs://host/lake"}
    checks = {check.name: check for check in _store(load_settings(flags), None)}
    assert not checks["store"].ok
    assert not checks["database"].ok
    rights = checks["database"].hint
    assert rights is not None
    assert rights.startswith("GRANT CREATE on schema public")
    assert ("SELECT on schema_version" in rights) == made


def test_doctor_goes_by_the_stores_clock(
    store: Store, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is under way is not unfinished, whatever time it is here."""
    monkeypatch.setattr(doctor, "utc_now", lambda: utc_now() + timedelta(hours=1))
    assert claim in store.claims()
    assert _unfinished(store, store.tables()).detail == "none"


def test_missing_rights_are_named_and_the_password_is_not(postgres: Postgres) -> None:
    url = postgres.new_database()
    open_store(url).close()
    postgres.execute(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}' IN ROLE {KEYED}")
    postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest", url)
    guest = with_login(url, "guest", PASSWORD)
    with open_store(guest) as store:
        missing = store.server().missing
        assert "CREATE on schema public" in missing
        assert "UPDATE on workers" in missing
        with pytest.raises(SetupError) as caught:
            store.create_table(make.definition())
        assert caught.value.reason is Reason.NO_PERMISSION
        said = f"{caught.value}{store!r}{store.url}{missing}"
        assert PASSWORD not in said
        assert quote(PASSWORD, safe="") not in said
