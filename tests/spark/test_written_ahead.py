"""Rows that only come are written while they are computed, in one Spark job; then they stand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import dynamic_tables as dt
from dynamic_tables.lake import transaction
from dynamic_tables.steps import AnyStep, Step, observing
from oracle import check

pytestmark = pytest.mark.spark

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
FOLDED = "SELECT k, count(*) AS n, sum(v) AS s, min(v) AS low FROM come GROUP BY k"


@pytest.fixture(scope="module")
def lake(shared: dt.DynamicTables) -> dt.DynamicTables:
    shared.sql(f"CREATE TABLE come (k INT, v INT) USING delta {FEED}")
    shared.sql("INSERT INTO come VALUES (1, 1), (1, 2), (2, 2), (NULL, NULL)")
    shared.create("folded_ahead", FOLDED, storage="MERGE_ON_READ", initialize="ON_SCHEDULE")
    shared.create(
        "added_ahead", "SELECT k, v + 1 AS w FROM come WHERE v > 0", initialize="ON_SCHEDULE"
    )
    shared.refresh()
    return shared


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were written ahead, write by write."""
    sizes, write = [], transaction.write_ahead

    def noted(*given: object, **named: object) -> transaction.Written | None:
        found = write(*given, **named)
        sizes.append(found.size if found is not None else -1)
        return found

    monkeypatch.setattr("dynamic_tables.lake.changes.write_ahead", noted)
    return sizes


def at(step: Step, table: str, work: Callable[[], object]) -> AbstractContextManager[None]:
    """Do something when a refresh of a table passes a step; the first time."""
    done: list[object] = []

    def observe(passed: AnyStep, name: str) -> None:
        if passed is step and name.endswith(table) and not done:
            done.append(work())

    return observing(observe)


@pytest.mark.parametrize(("name", "strategy"), [("folded", "fold"), ("added", "append")])
def test_rows_that_only_come_take_one_job(
    lake: dt.DynamicTables, written: list[int], name: str, strategy: str
) -> None:
    lake.refresh()
    written.clear()
    lake.sql("INSERT INTO come VALUES (1, 5), (NULL, 7), (9, 9), (9, 9)")
    record = lake.refresh(f"{name}_ahead")[f"{name}_ahead"]
    assert (record.strategy, record.work.spark_jobs) == (strategy, 1)
    assert written == [record.work.rows_inserted] == [3 if name == "folded" else 4]
    assert record.work.rows_deleted == 0
    check(lake, f"{name}_ahead")


def test_an_update_is_looked_at_first(lake: dt.DynamicTables, written: list[int]) -> None:
    """What goes may be a least value, and a row that is to go must be there."""
    lake.sql("UPDATE come SET v = 3 WHERE v = 1")
    lake.refresh()
    assert written == []
    check(lake)


def test_what_comes_to_nothing_is_no_commit(lake: dt.DynamicTables, written: list[int]) -> None:
    lake.refresh()
    before = lake.show("added_ahead").build
    lake.sql("INSERT INTO come VALUES (3, -1)")
    record = lake.refresh("added_ahead")["added_ahead"]
    assert (record.strategy, record.reason, written) == ("no_data", "NET_EMPTY", [0])
    after = lake.show("added_ahead").build
    assert before is not None
    assert after is not None
    assert (before.version, before.sequence) == (after.version, after.sequence)


@pytest.mark.parametrize("name", ["folded", "added"])
def test_a_table_that_is_altered_meanwhile_is_written_anew(
    lake: dt.DynamicTables, written: list[int], name: str
) -> None:
    stored = "folded_ahead__ivm" if name == "folded" else "added_ahead"
    lake.sql("INSERT INTO come VALUES (4, 4), (5, 5)")
    alter = f"ALTER TABLE {stored} SET TBLPROPERTIES ('looked' = 'after')"
    with at(Step.COMPUTED, f"{name}_ahead", lambda: lake.spark.sql(alter)):
        assert lake.refresh(f"{name}_ahead")[f"{name}_ahead"].outcome == "done"
    assert len(written) == 1
    check(lake, f"{name}_ahead")


@pytest.mark.parametrize("name", ["folded", "added"])
def test_a_compaction_between_the_rows_and_their_commit(
    lake: dt.DynamicTables, written: list[int], name: str
) -> None:
    for number in range(2):
        lake.sql(f"INSERT INTO come VALUES (6, {number + 1})")
        if number == 0:
            lake.refresh(f"{name}_ahead")
    optimize = f"OPTIMIZE DYNAMIC TABLE {name}_ahead"
    with at(Step.COMPUTED, f"{name}_ahead", lambda: lake.sql(optimize)):
        assert lake.refresh(f"{name}_ahead")[f"{name}_ahead"].outcome == "done"
    assert len(written) == 2
    check(lake, f"{name}_ahead")


@pytest.mark.parametrize("name", ["folded", "added"])
def test_a_refresh_that_fails_leaves_its_files_unseen(lake: dt.DynamicTables, name: str) -> None:
    """Nothing refers to them; VACUUM takes them. The next refresh writes its own."""
    lake.refresh(f"{name}_ahead")
    lake.sql("INSERT INTO come VALUES (7, 7)")
    folder = Path(lake.show(f"{name}_ahead").definition.location.removeprefix("file:"))

    def die() -> None:
        raise KeyboardInterrupt

    before = {*folder.glob("*.parquet")}
    with at(Step.COMPUTED, f"{name}_ahead", die), pytest.raises(KeyboardInterrupt):
        lake.refresh(f"{name}_ahead")
    assert {*folder.glob("*.parquet")} > before
    assert lake.refresh(f"{name}_ahead")[f"{name}_ahead"].outcome == "done"
    check(lake, f"{name}_ahead")


def test_a_sum_that_may_overflow_is_looked_at_first(
    lake: dt.DynamicTables, written: list[int]
) -> None:
    """Spark gives NULL for a sum of decimals that has no room; then the group needs its rows."""
    lake.sql(f"CREATE TABLE full_decimals (k INT, v DECIMAL(38, 0)) USING delta {FEED}")
    lake.sql("INSERT INTO full_decimals VALUES (1, 1)")
    lake.create(
        "of_full", "SELECT k, count(*) AS n, sum(v) AS s FROM full_decimals GROUP BY k",
        storage="MERGE_ON_READ",
    )  # fmt: skip
    lake.sql("INSERT INTO full_decimals VALUES (1, 2), (2, 5)")
    assert lake.refresh("of_full")["of_full"].strategy == "fold"
    assert written == []
    check(lake, "of_full")
