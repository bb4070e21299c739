"""`kill -9` at every step, then go on: nothing is lost, nothing is doubled.

A victim takes several tables at once, each to another step, and dies when all have arrived: so one
JVM serves many steps, and every death leaves several tables behind in different states.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path

import pytest
from harness import check_lake, run_victim

import dynamic_tables as dt
from dynamic_tables.steps import AnyStep, CompactionStep, Step

pytestmark = pytest.mark.spark

KINDS = ("python", "jvm", "both")
CREATE_STEPS = (Step.DEFINED, Step.LAID_OUT)
REFRESH_STEPS = tuple(step for step in Step if step not in CREATE_STEPS)
GROUPED = "SELECT customer, count(*) AS n FROM orders WHERE id > -{n} GROUP BY customer"
PLAIN = "SELECT customer, amount FROM orders WHERE id > -{n}"
STORAGES = ("IN_PLACE", "MERGE_ON_READ")
Lake = tuple[Path, dt.DynamicTables]
MakeLake = Callable[[int], Lake]


@pytest.fixture(scope="module")
def make_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeLake]:
    opened: list[dt.DynamicTables] = []

    def make(size: int) -> Lake:
        """`t0`, `t4`, … are written by difference, `t1`, `t3`, … whole, `t2`, `t6`, … in parts."""
        folder = tmp_path_factory.mktemp("crash") / "lake"
        tables = dt.connect(folder, jvm="quick", say=lambda _: None)
        opened.append(tables)
        tables.sql(
            "CREATE TABLE orders USING delta AS SELECT id, customer, CAST(id AS DECIMAL(10, 2))"
            " AS amount FROM VALUES (1, 1), (2, 1), (3, NULL) AS orders (id, customer)"
        )
        for n in range(size):
            query = (PLAIN if n % 2 else GROUPED).format(n=n)
            how = {"refresh_mode": "FULL"} if n % 2 else {"storage": STORAGES[n // 2 % 2]}
            tables.create(f"t{n}", query, initialize="ON_SCHEDULE", **how)
        parents = " UNION ALL ".join(f"SELECT customer FROM t{n}" for n in range(0, size, 2))
        tables.create("child", parents, initialize="ON_SCHEDULE")
        tables.refresh()
        return folder, tables

    yield make
    for tables in opened:
        tables.close()


@pytest.fixture(scope="module")
def small_lake(make_lake: MakeLake) -> Lake:
    return make_lake(3)


@pytest.fixture(scope="module")
def large_lake(make_lake: MakeLake) -> Lake:
    return make_lake(len(REFRESH_STEPS))


def survive(lake: Lake, kind: str, steps: list[Step], *, moving: bool = True) -> None:
    """Kill refreshes and creations at these steps; a fresh process goes on, the equation holds.

    If the sources have moved meanwhile, it completes the old cut first, then goes to the new one.
    """
    folder, tables = lake
    tables.sql("INSERT INTO orders SELECT max(id) + 1, max(id) % 3, max(id) FROM orders")
    refreshed = iter(range(len(steps)))
    plan = {
        f"made_{step}" if step in CREATE_STEPS else f"t{next(refreshed)}": step for step in steps
    }
    run_victim(folder, kind, plan)
    if moving:
        tables.sql("INSERT INTO orders SELECT max(id) + 1, max(id) % 3, max(id) FROM orders")
    report = tables.refresh()
    made = [name for name in plan if name.startswith("made_")]
    if kind == "jvm":
        made = [name for name in made if _declared(tables, name)]  # Python may have undone it
    assert {report[name].action for name in made} <= {"initialize"}
    check_lake(tables)
    for name in made:
        tables.drop(name)


def _declared(tables: dt.DynamicTables, name: str) -> bool:
    return any(state.definition.name.name == name for state in tables.list())


TURNS = [*zip(Step, cycle(KINDS), strict=False)]  # one victim a step, the kinds in turn


@pytest.mark.parametrize("kind", KINDS)
def test_survives(small_lake: Lake, kind: str) -> None:
    """The sources move on in one of the turns, and in all of them on DuckLake and in the soak."""
    steps = [step for step, turn in TURNS if turn == kind]
    survive(small_lake, kind, steps, moving=kind == "both")


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turn", [0, 1])
def test_survives_whole_matrix(large_lake: Lake, kind: str, turn: int) -> None:
    """Every step with every kind, by difference and whole."""
    steps = [*REFRESH_STEPS[turn:], *REFRESH_STEPS[:turn]]
    survive(large_lake, kind, [*CREATE_STEPS, *steps])


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_first_load_survives_whole_matrix(make_lake: MakeLake, kind: str) -> None:
    """CREATE, killed at every step of its first load."""
    folder, tables = make_lake(1)
    plan = {f"made_{step}": step for step in Step}
    run_victim(folder, kind, plan)
    tables.refresh()
    check_lake(tables)


# `o…` are optimized, `p…` refreshed and then compacted by the policy, of `r…` groups are replaced.
EXTREMES = "SELECT customer, count(*) AS n, max(amount) AS high FROM orders GROUP BY customer"
SMALL = {"o0": CompactionStep.WRITTEN, "p0": CompactionStep.FOLDED}
LARGE = {f"{way}{n}": step for way in "op" for n, step in enumerate(CompactionStep)} | {
    f"r{n}": step for n, step in enumerate((Step.LOCKED, Step.COMMITTED))
}
BY_POLICY = {"DYNAMIC_TABLES_COMPACT_FILES": "2"}


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        ("both", SMALL),
        *(pytest.param(kind, LARGE, marks=pytest.mark.soak) for kind in KINDS),
    ],
)
def test_compaction_and_groups_replaced(
    small_lake: Lake, kind: str, plan: Mapping[str, AnyStep]
) -> None:
    """Groups of partial rows are folded, or replaced by their rows, and death comes: nothing is
    doubled for readers, the next refresh and the next OPTIMIZE go on."""
    folder, tables = small_lake
    for name in plan:
        tables.create(name, EXTREMES, storage="MERGE_ON_READ", initialize="ON_SCHEDULE")
    tables.refresh(*plan)
    tables.sql("INSERT INTO orders VALUES (4, 1, 40), (5, NULL, 999), (6, 7, 60)")
    tables.refresh(*plan)
    rows = tables.spark.table("orders").count()
    tables.sql("DELETE FROM orders WHERE amount = 999")
    optimized = [name for name in plan if name.startswith("o")]
    run_victim(folder, kind, plan, os.environ | BY_POLICY, optimized)
    for name in plan:
        stands = rows if name in (*optimized, "r0") else rows - 1
        assert _total(tables, name) == stands, name
    tables.sql("INSERT INTO orders VALUES (8, 1, 80)")
    tables.refresh(*plan)
    for name in plan:
        tables.optimize(name)
        assert tables.spark.table(f"{name}__ivm").count() == tables.read(name).count()
    check_lake(tables, *plan)
    for name in plan:
        tables.drop(name)


def _total(tables: dt.DynamicTables, name: str) -> int:
    return tables.sql(f"SELECT sum(n) AS n FROM {name}").collect()[0].n
