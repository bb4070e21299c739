"""Dropping beside those who declare tables and claim slices: nobody waits in a circle. And what was
dropped by mistake comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import store_builders as make
from test_store_subtasks import RESULT, age, share, taken, wanted

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError, InvalidInput
from dynamic_tables.model import Status
from dynamic_tables.reasons import Reason
from dynamic_tables.store import QUERYABLE, Claim, Store, dropping, open_store, subtasks
from dynamic_tables.store.engine import writing
from postgres import Postgres

PATIENCE_S = 30
SOMEBODY_WAITS = (
    "SELECT 1 FROM pg_stat_activity "
    "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
)


@pytest.fixture
def url(postgres: Postgres) -> str:
    """SQLite has one lock, so that nobody can hold one and wait for another."""
    return postgres.new_database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgresql"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    on_server = request.param == "postgresql"
    with open_store(request.getfixturevalue("url") if on_server else tmp_path / "s.db") as opened:
        yield opened


def until_blocked(postgres: Postgres, url: str, waiting: Future[Any]) -> None:
    """Until it waits for a lock that this thread holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not postgres.execute(SOMEBODY_WAITS, url):
        assert not waiting.done(), waiting.result()
        assert time.monotonic() < deadline


CREATE, ALTER, ALSO_DROPPED = "CREATE", "ALTER", "ALTER of a table that is dropped, too"


@pytest.mark.parametrize("what", [CREATE, ALTER, ALSO_DROPPED])
def test_a_drop_of_all_sources_and_a_child_of_them_wait_in_one_order(
    postgres: Postgres, url: str, store: Store, what: str
) -> None:
    """DROP holds the first table and comes to the others, which the child's query names before."""
    parents = (make.definition("second"), make.definition("first"))
    for parent in parents:
        store.create_table(parent)
    child = make.definition("above all", parents=parents, revision=2)
    change = declares(store, child, what)
    going = sorted(item.table_id for item in (*parents, *([child] * (what is ALSO_DROPPED))))
    with ThreadPoolExecutor(1) as pool:
        with writing(store._engine) as connection:
            dropping.lock(connection, going[:1])
            waiting = pool.submit(change)
            until_blocked(postgres, url, waiting)
            dropping.drop(connection, dropping.lock(connection, going))
        with pytest.raises(DynamicTablesError) as caught:
            waiting.result(PATIENCE_S)
    told = Reason.TAKEN_OVER if what is ALSO_DROPPED else Reason.UNKNOWN_SOURCE
    assert caught.value.reason is told


def declares(store: Store, definition: Definition, what: str) -> Callable[[], None]:
    """CREATE; or ALTER of a table that has read nothing of the kind."""
    if what is CREATE:
        return lambda: store.create_table(definition)
    store.create_table(make.definition(definition.name.name))
    claim = store.claim(definition.table_id, "alter", make.claimant())
    return lambda: store.update_definition(claim, definition)


def test_a_drop_waits_for_who_goes_to_the_help_of_a_slow_worker(
    postgres: Postgres, url: str, store: Store, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The helper holds the slow worker's slice when DROP comes, and looks at the intent then."""
    claim = store.claim(table, "refresh-1", make.claimant())
    slow = made_slow(store, claim)
    held, dropping = subtasks._held, []

    def drops_meanwhile(*args: Any) -> dict[str, Any]:
        dropping.append(pool.submit(store.delete_tables, [table], [claim]))
        until_blocked(postgres, url, dropping[0])
        return held(*args)

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(subtasks, "_held", drops_meanwhile)
        helper = store.claim_subtask(make.claimant(1))
        dropping[0].result(PATIENCE_S)
    assert helper is not None
    assert (helper.slice_no, helper.attempt) == (slow, 1)
    assert store.tables() == store.subtasks() == []


def test_what_was_dropped_can_be_put_back_as_it_was(both: Store) -> None:
    """Of two tables, one; the rows of the other stay away."""
    parent, store = make.definition(), both
    child = make.definition("child", parents=(parent,))
    for declared in (parent, child):
        store.create_table(declared)
    claim = store.claim(parent.table_id, "refresh-1", make.claimant())
    done = make.record(started_at=store.now())
    store.record(claim, done, make.build(), close_intent=None, failures="keep")
    store.open_intent(claim, make.intent(2))
    store.open_slices(claim, 2, {"strategy": "keys"}, wanted(2))
    store.set_status(parent.table_id, Status.SUSPENDED, "by hand")
    before, builds = rows_of(store), store.builds(parent.table_id)
    both_ids = [parent.table_id, child.table_id]
    dropped = store.delete_tables(both_ids)
    assert rows_of(store)["refresh_subtasks"] == []
    store.put_back(dropped, both_ids)
    assert rows_of(store) == before
    assert store.builds(parent.table_id) == builds
    dropped = store.delete_tables(both_ids)
    store.put_back(dropped, [parent.table_id])
    assert [state.definition for state in store.tables()] == [parent]
    assert store.intent(parent.table_id) is not None
    with pytest.raises(InvalidInput) as caught:
        store.put_back(dropped, [parent.table_id])
    assert caught.value.reason is Reason.ALREADY_EXISTS


def rows_of(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """All that is kept of tables; who held them has to come again."""
    return {name: store.read_rows(name)[1] for name in QUERYABLE if name != "refresh_claims"}


def made_slow(store: Store, claim: Claim) -> int:
    """One of two slices is through, the other one's worker takes very long."""
    share(store, claim, 2)
    quick, slow = taken(store, 1), taken(store, 2)
    assert store.complete_subtask(quick, RESULT)
    age(store, slow, expired=False)
    return slow.slice_no
