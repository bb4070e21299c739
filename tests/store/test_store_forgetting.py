"""What the store forgets, and that nobody who reads it can tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import store_builders as make
from sqlalchemy import Table, func, select

from dynamic_tables.model import RefreshRecord
from dynamic_tables.store import Claim, Store, forgetting, open_store, schema
from dynamic_tables.store.engine import reading

EVERYTHING = 1_000_000  # so many rows are kept, that is, all
LONG = 100_000  # days


def count(store: Store, table: Table) -> int:
    with reading(store._engine) as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


@pytest.fixture
def hoarder(url: str) -> Iterator[Store]:
    """The same store, opened by somebody who forgets no history."""
    with open_store(url, history_days=LONG) as opened:
        yield opened


def refreshed(store: Store, claim: Claim, number: int) -> None:
    store.record(
        claim, make.record(number), make.build(number, number), close_intent=None, failures="reset"
    )


def seen(store: Store, hours: float, **changes: Any) -> RefreshRecord:
    """A refresh that began so many hours ago by the database's clock."""
    return make.failed(started_at=store.now() - timedelta(hours=hours), **changes)


def tell(store: Store, record: RefreshRecord) -> None:
    store.record(None, record, None, close_intent=None, failures="keep")


def test_the_newest_builds_stay(
    store: Store, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who plans a cut reads the same before and after."""
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "KEPT_BUILDS", EVERYTHING)
        for number in range(1, 150):
            refreshed(store, claim, number)
    before = store.builds(claim.table_id)
    assert count(store, schema.builds) == 149
    refreshed(store, claim, 150)
    after = store.builds(claim.table_id)
    assert [build.sequence for build in after] == list(range(150, 50, -1))
    assert after[1:] == before[:-1]
    assert store.builds(claim.table_id, limit=EVERYTHING) == after
    assert count(store, schema.builds) == forgetting.KEPT_BUILDS == 100
    assert count(store, schema.source_snapshots) == 100 * len(make.pins())
    state = store.table_by_id(claim.table_id)
    assert state is not None
    assert state.build == after[0]


def test_builds_of_other_tables_and_found_ones(
    store: Store, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table has its own; a build that was found in the lake counts as well."""
    monkeypatch.setattr(forgetting, "KEPT_BUILDS", 2)
    store.create_table(make.definition("other"))
    store.adopt_build(make.build(1, table="other"))
    for number in (1, 2):
        refreshed(store, claim, number)
    assert store.adopt_build(make.build(3, 3))
    assert [build.sequence for build in store.builds(claim.table_id)] == [3, 2]
    assert len(store.builds("id-other")) == 1


def test_a_store_that_hoarded_is_cleared_bit_by_bit(
    store: Store, claim: Claim, hoarder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "KEPT_BUILDS", EVERYTHING)
        for number in range(1, 13):
            refreshed(hoarder, claim, number)
    for name, value in {"KEPT_BUILDS": 3, "KEPT_REFRESHES": 4, "FORGOTTEN_AT_ONCE": 5}.items():
        monkeypatch.setattr(forgetting, name, value)
    left = []
    for number in (13, 14, 15):
        refreshed(store, claim, number)
        left.append((count(store, schema.builds), count(store, schema.refresh_history)))
    assert left == [(8, 8), (4, 4), (3, 4)]
    assert [record.sequence for record in store.history()] == [15, 14, 13, 12]


def test_old_history_goes_and_the_newest_rows_stay(store: Store, hoarder: Store) -> None:
    store.create_table(make.definition())
    for number in range(60):
        tell(hoarder, seen(store, 24 * 200 - number, refresh_id=f"old {number}"))
    for number in range(30):
        tell(hoarder, seen(store, 24 * 80 - number, refresh_id=f"young {number}"))
    before = store.history()
    tell(store, seen(store, 0, refresh_id="now"))
    after = store.history(limit=EVERYTHING)
    assert after[1:50] == before[:49]
    kept = [record.refresh_id for record in after]
    assert kept == [
        "now",
        *(f"young {n}" for n in range(29, -1, -1)),
        *(f"old {n}" for n in range(59, 40, -1)),
    ]  # fmt: skip  50 in all
    for number in range(60):
        tell(store, seen(store, 0, refresh_id=f"more {number}"))
    kept = [record.refresh_id for record in store.history(limit=EVERYTHING)]
    assert len(kept) == 60 + 1 + 30  # what is old goes; of the last days all stay
    assert not any(name.startswith("old") for name in kept)


def test_lateness_is_the_same_before_and_after(store: Store, hoarder: Store) -> None:
    store.create_table(make.definition())
    for number in range(60):
        past, today = timedelta(days=200), timedelta(hours=20 - number / 10)
        tell(hoarder, make.record(started_at=store.now() - past, behind_ms=90_000))
        tell(hoarder, make.record(started_at=store.now() - today, behind_ms=70_000))
    since = store.now() - timedelta(days=1)
    before = store.late("id-by_customer", since, 60.0)
    rows = count(store, schema.refresh_history)
    tell(store, seen(store, 0))
    assert count(store, schema.refresh_history) < rows
    assert store.late("id-by_customer", since, 60.0) == before
    assert [end - begin for begin, end in before] == [timedelta(seconds=10)] * 60


def test_the_history_of_dropped_tables_is_swept(store: Store, hoarder: Store) -> None:
    """By workers that come, and by whoever drops another one."""
    for table in ("one", "two", "three"):
        store.create_table(make.definition(table))
    for hours in (24 * 200, 1):
        for table in ("one", "two", "three"):
            tell(hoarder, seen(store, hours, table_id=f"id-{table}", table=make.name(table)))
    store.enter(make.claimant())
    assert count(store, schema.refresh_history) == 6  # they are all there still
    hoarder.delete_tables(["id-one"])
    assert len(store.history("id-one")) == 2
    store.enter(make.claimant(2))
    assert len(store.history("id-one")) == 1
    store.delete_tables(["id-two"])
    assert len(store.history("id-two")) == 1
    assert len(store.history("id-three")) == 2
