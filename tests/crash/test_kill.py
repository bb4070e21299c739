"""`kill -9` at every step, then go on: nothing is lost, nothing is doubled; SIGSTOP likewise.

A victim takes several tables at once, each to another step, and dies when all have arrived: so one
JVM serves many steps, and every death leaves several tables behind in different states.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest
from harness import PATIENCE_S, Plan, check_lake, run_victim, start_victim, wait_until_stopped

import dynamic_tables as dt
from dynamic_tables.steps import CompactionStep, Step

pytestmark = pytest.mark.spark

KINDS = ("python", "jvm", "both")
CREATE_STEPS = (Step.DEFINED, Step.LAID_OUT)
REFRESH_STEPS = tuple(step for step in Step if step not in CREATE_STEPS)
OPEN = (Step.INTENDED, Step.LOCKED, Step.COMMITTED, Step.REGISTERED)  # a number is taken
GROUPED = "SELECT customer, count(*) AS n FROM orders WHERE id > -{n} GROUP BY customer"
PLAIN = "SELECT customer, amount FROM orders WHERE id > -{n}"
STORAGES = ("IN_PLACE", "MERGE_ON_READ")
Lake = tuple[Path, dt.DynamicTables]
MakeLake = Callable[..., Lake]


@pytest.fixture(scope="module")
def make_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeLake]:
    opened: list[dt.DynamicTables] = []

    def make(size: int, **flags: object) -> Lake:
        """`t0`, `t4`, … are written by difference, `t1`, `t3`, … whole, `t2`, `t6`, … in parts."""
        folder = tmp_path_factory.mktemp("crash") / "lake"
        tables = dt.connect(folder, jvm="quick", say=lambda _: None, **flags)
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


@pytest.mark.soak
def test_paused_creations_are_overtaken(make_lake: MakeLake) -> None:
    """SIGSTOP at every step of CREATE until its claims expire, then SIGCONT: the successor's load
    stands, and who wakes up says so. Who is about to commit keeps the table's lock meanwhile."""
    folder, tables = make_lake(1, lock_wait_s=2)
    plan = {f"made_{step}": step for step in Step}
    locked, free = "made_locked", [name for name in plan if name != "made_locked"]
    victim = start_victim(folder, "stop", plan)
    wait_until_stopped(victim)
    tables.sql("INSERT INTO orders SELECT max(id) + 1, max(id) % 3, max(id) FROM orders")
    until(lambda: tables.refresh(*free, on_error="report").ok)
    check_lake(tables, *free)
    until(lambda: _is_locked_out(tables, locked))
    assert tables.show(locked).build is None
    standing = {name: tables.show(name).build for name in free}
    assert _woken(victim) == {"TAKEN_OVER"}
    assert {name: tables.show(name).build for name in free} == standing
    tables.refresh()
    check_lake(tables)
    for name, step in plan.items():
        *_, load = (record for record in tables.history(name) if record.sequence == 1)
        assert load.reason == ("RECOVERED" if step in OPEN else "FIRST_LOAD"), name


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def _is_locked_out(tables: dt.DynamicTables, *names: str) -> bool:
    """Whether all of them are kept from committing, no more by claims."""
    records = tables.refresh(*names, on_error="report").records
    assert {record.reason for record in records} == {"HELD"}, records
    return all("has been committing" in (record.error or "") for record in records)


def _woken(victim: subprocess.Popen[str]) -> set[str]:
    """What a victim says that was stopped and goes on."""
    victim.send_signal(signal.SIGCONT)
    output, _ = victim.communicate(timeout=PATIENCE_S)
    return {word for line in output.splitlines() if " at " not in line for word in line.split()}


# `o…` are optimized, `p…` refreshed and then compacted by the policy, of `r…` groups are replaced.
EXTREMES = "SELECT customer, count(*) AS n, max(amount) AS high FROM orders GROUP BY customer"
SMALL = {"o0": CompactionStep.WRITTEN, "p0": CompactionStep.FOLDED}
LARGE = {f"{way}{n}": step for way in "op" for n, step in enumerate(CompactionStep)} | {
    f"r{n}": step for n, step in enumerate((Step.LOCKED, Step.COMMITTED))
}
BY_POLICY = {"DYNAMIC_TABLES_COMPACT_FILES": "2"}


def fill_in_parts(tables: dt.DynamicTables, plan: Plan) -> int:
    """Tables with partial rows whose source has moved on; how many rows they stand for."""
    for name in plan:
        tables.create(name, EXTREMES, storage="MERGE_ON_READ", initialize="ON_SCHEDULE")
    tables.refresh(*plan)
    tables.sql("INSERT INTO orders VALUES (4, 1, 40), (5, NULL, 999), (6, 7, 60)")
    tables.refresh(*plan)
    rows = tables.spark.table("orders").count()
    tables.sql("DELETE FROM orders WHERE amount = 999")
    return rows


def check_folded(tables: dt.DynamicTables, plan: Plan) -> None:
    """They can be compacted, and are right."""
    for name in plan:
        tables.optimize(name)
        assert tables.spark.table(f"{name}__ivm").count() == tables.read(name).count()
    check_lake(tables, *plan)


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        ("both", SMALL),
        *(pytest.param(kind, LARGE, marks=pytest.mark.soak) for kind in KINDS),
    ],
)
def test_compaction_and_groups_replaced(small_lake: Lake, kind: str, plan: Plan) -> None:
    """Groups of partial rows are folded, or replaced by their rows, and death comes: nothing is
    doubled for readers, the next refresh and the next OPTIMIZE go on."""
    folder, tables = small_lake
    rows = fill_in_parts(tables, plan)
    optimized = [name for name in plan if name.startswith("o")]
    run_victim(folder, kind, plan, os.environ | BY_POLICY, optimized)
    for name in plan:
        stands = rows if name in (*optimized, "r0") else rows - 1
        assert _total(tables, name) == stands, name
    tables.sql("INSERT INTO orders VALUES (8, 1, 80)")
    tables.refresh(*plan)
    check_folded(tables, plan)
    for name in plan:
        tables.drop(name)


@pytest.mark.soak
def test_paused_compactions(make_lake: MakeLake) -> None:
    """SIGSTOP at every step of a compaction until the claims of refreshes expire, then SIGCONT. It
    has the table's lock at all of them: others read on, and commit when it is through."""
    folder, tables = make_lake(1, lock_wait_s=2)
    plan = {name: step for name, step in LARGE.items() if isinstance(step, CompactionStep)}
    rows = fill_in_parts(tables, plan)
    optimized = [name for name in plan if name.startswith("o")]
    victim = start_victim(folder, "stop", plan, os.environ | BY_POLICY, optimized)
    wait_until_stopped(victim)
    tables.sql("INSERT INTO orders VALUES (8, 1, 80)")
    until(lambda: _is_locked_out(tables, *plan))
    stands = {name: rows if name in optimized else rows - 1 for name in plan}
    assert {name: _total(tables, name) for name in plan} == stands
    assert _woken(victim) == {"TAKEN_OVER"}  # those that were refreshed
    assert {name: _total(tables, name) for name in plan} == stands
    tables.refresh(*plan)
    check_folded(tables, plan)


def _total(tables: dt.DynamicTables, name: str) -> int:
    return tables.sql(f"SELECT sum(n) AS n FROM {name}").collect()[0].n
