"""Death at every step, lost answers, two at once: nothing is lost, nothing is doubled."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from duck_oracle import check, check_lake

import dynamic_tables as dt
from dynamic_tables.connect import STORE_FILE
from dynamic_tables.errors import RefreshError
from dynamic_tables.lake.base import Stamp, WorkArea
from dynamic_tables.lake.duck import own
from dynamic_tables.processes import this_host
from dynamic_tables.reasons import Reason
from dynamic_tables.steps import AnyStep, CompactionStep, Step, observing
from dynamic_tables.store import Claim, Claimant

VICTIM = Path(__file__).parents[1] / "crash" / "victim.py"
PATIENCE_S = 100
CREATE_STEPS = (Step.DEFINED, Step.LAID_OUT)
GROUPED = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
MORE = "INSERT INTO orders SELECT max(id) + 1, max(id) % 3, max(id) FROM orders"


class Died(BaseException):
    """Stands for the end of the process."""


def die_at(step: AnyStep) -> Callable[[AnyStep, str], None]:
    return fail_at(step, Died())


def fail_at(step: AnyStep, error: BaseException) -> Callable[[AnyStep, str], None]:
    """Once: what is done afterwards to clean up passes."""
    failed = threading.Event()

    def observer(reached: AnyStep, _table: str) -> None:
        if reached is step and not failed.is_set():
            failed.set()
            raise error

    return observer


def make_lake(folder: Path) -> None:
    """`grouped` has a child and is written by difference; `plain` whole."""
    with open_lake(folder) as tables:
        tables.sql("CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2))")
        tables.sql("INSERT INTO orders VALUES (1, 1, 5), (2, 1, 6), (3, NULL, 7)")
        tables.create("grouped", GROUPED, initialize="ON_SCHEDULE")
        tables.create("plain", "SELECT customer, amount FROM orders", initialize="ON_SCHEDULE")
        tables.create("child", "SELECT customer FROM grouped", initialize="ON_SCHEDULE")
        tables.refresh()


def open_lake(folder: Path, *, rebuild: bool = False) -> dt.DynamicTables:
    tables = dt.connect(f"ducklake:{folder}", say=lambda _: None, rebuild=rebuild)
    tables.sql("SET threads = 1")
    return tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake that dies many deaths; it stays open, so that opening it again is cheap."""
    place = tmp_path_factory.mktemp("crash") / "lake"
    with open_lake(place):
        make_lake(place)
        yield place


@pytest.fixture
def tables(folder: Path) -> Iterator[dt.DynamicTables]:
    with open_lake(folder) as opened:
        opened.sql(MORE)
        yield opened


def kill(folder: Path, plan: Mapping[str, AnyStep]) -> None:
    """A process takes each table to its step and is killed there."""
    steps = [f"{table}={step.value}" for table, step in plan.items()]
    command = [sys.executable, str(VICTIM), f"ducklake:{folder}", "python", *steps]
    victim = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert victim.returncode == -signal.SIGKILL, victim.stdout + victim.stderr
    for table, step in plan.items():
        assert f"{table.removeprefix('optimize:')} at {step.value}" in victim.stdout


# All tables share one lock, so a table that waits at LOCKED keeps the others from going further.
AT_ONCE = [step for step in Step if step is not Step.LOCKED]


def test_killed_at_every_step(tmp_path: Path) -> None:
    """Tables that are created and tables that are refreshed, each at a step of its own."""
    folder = tmp_path / "lake"
    make_lake(folder)
    old = {step: f"old_{step}" for step in Step if step not in CREATE_STEPS}
    with open_lake(folder) as tables:
        for n, name in enumerate(old.values()):
            query = f"SELECT customer, amount FROM orders WHERE id > -{n}"
            tables.create(name, query, initialize="ON_SCHEDULE")
        parents = [f"SELECT customer FROM {name}" for name in list(old.values())[::2]]
        below = " UNION ALL ".join(parents)  # half of the tables go by difference
        tables.create("below", below, initialize="ON_SCHEDULE")
        tables.refresh(*old.values())
    survive(folder, {f"made_{s}": s for s in AT_ONCE} | {old[s]: s for s in AT_ONCE if s in old})
    for name in ("made_locked", old[Step.PINNED], old[Step.LOCKED]):  # new, whole, by difference
        survive(folder, {name: Step.LOCKED})


def survive(folder: Path, plan: Mapping[str, Step]) -> None:
    """The sources move, a process dies, the sources move; the next one goes on."""
    with open_lake(folder) as tables:
        tables.sql(MORE)
    kill(folder, plan)
    with open_lake(folder) as tables:
        tables.sql(MORE)
        report = tables.refresh(*plan)
        assert {record.outcome for record in report.records} == {"done"}
        check_lake(tables, *plan)


@pytest.mark.parametrize("step", [step for step in Step if step not in CREATE_STEPS])
def test_refresh_dies_at_every_step(folder: Path, step: Step) -> None:
    with open_lake(folder) as tables:
        tables.sql(MORE)
        with observing(die_at(step)), pytest.raises(Died):
            tables.refresh("grouped")
    with open_lake(folder) as tables:
        tables.refresh()
        check_lake(tables)


EXTREMES = "SELECT customer, count(*) AS n, max(amount) AS high FROM orders GROUP BY customer"


def make_parts(tables: dt.DynamicTables, name: str) -> None:
    """A table in parts, one of whose greatest values goes: the next refresh replaces its group."""
    tables.create(name, EXTREMES, storage="MERGE_ON_READ")
    tables.sql("INSERT INTO orders VALUES (98, 1, 500), (99, NULL, 500)")
    tables.refresh(name)
    tables.sql("DELETE FROM orders WHERE amount = 500")


def check_parts(tables: dt.DynamicTables, name: str) -> None:
    """The next refresh replaces groups, or finds it done; the next OPTIMIZE changes none."""
    report = tables.refresh(name)
    assert report[name].outcome == "done"
    check_lake(tables, name)
    tables.optimize(name)
    assert (
        tables.sql(f"SELECT count(*) FROM {name}__ivm").collect()
        == tables.sql("SELECT count(DISTINCT coalesce(customer, -1)) FROM orders").collect()
    )
    check_lake(tables, name)


def test_tables_in_parts_killed(tmp_path: Path) -> None:
    """OPTIMIZE half done, and the commit that replaces what is stored of some groups."""
    folder = tmp_path / "lake"
    make_lake(folder)
    victims: list[tuple[str, AnyStep]] = [
        ("optimize:parts", CompactionStep.FOLDED), ("parts", Step.LOCKED),
    ]  # fmt: skip
    for victim, step in victims:
        with open_lake(folder) as tables:
            make_parts(tables, "parts")
        kill(folder, {victim: step})
        with open_lake(folder) as tables:
            check(tables, "parts")  # as it was
            check_parts(tables, "parts")
            tables.drop("parts")


@pytest.mark.parametrize(
    "step",
    [
        Step.COMMITTED,
        pytest.param(CompactionStep.LOCKED, marks=pytest.mark.soak),
        pytest.param(CompactionStep.MERGED, marks=pytest.mark.soak),
    ],
)
def test_tables_in_parts_die(folder: Path, step: AnyStep) -> None:
    with open_lake(folder) as tables:
        make_parts(tables, "parts")
        act = tables.refresh if isinstance(step, Step) else tables.optimize
        with observing(die_at(step)), pytest.raises(Died):
            act("parts")
    with open_lake(folder) as tables:
        check_parts(tables, "parts")
        tables.drop("parts")


@pytest.mark.parametrize("step", [s for s in Step if s not in (Step.DEFINED, Step.RELEASED)])
def test_create_that_is_interrupted_leaves_no_trace(folder: Path, step: Step) -> None:
    """Declared is declared, though: what is cut off before the lake is touched, stays in the store
    (DEFINED, which is tested by killing there)."""
    with open_lake(folder) as tables:
        with observing(die_at(step)), pytest.raises(Died):
            tables.create("short", GROUPED)
        assert "short" not in {state.definition.name.name for state in tables.list()}
        left = tables.sql("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE '_ivm_%'")
        assert left.collect() == []
        assert len(list(tables.lake.stored_definitions())) == len(tables.list())


def test_create_that_is_interrupted_when_all_is_done_stands(folder: Path) -> None:
    """Its claim is given back: others may read the table already."""
    with open_lake(folder) as tables:
        with observing(die_at(Step.RELEASED)), pytest.raises(Died):
            tables.create("short", GROUPED)
        check(tables, "short")
        assert tables.store.claims() == []
        tables.drop("short")


def test_commit_landed_answer_lost(tables: dt.DynamicTables) -> None:
    """The commit is found by its number and recorded; nothing is written twice."""
    before = tables.show("grouped").build
    assert before is not None
    with observing(fail_at(Step.COMMITTED, duckdb.IOException("answer lost"))):
        record = tables.refresh("grouped")["grouped"]
    assert (record.outcome, record.sequence) == ("done", before.sequence + 1)
    check_lake(tables)


def test_answer_lost_commit_not_landed(tables: dt.DynamicTables) -> None:
    """The number is fenced off, the table is as it was, the next refresh takes the next number."""
    before = tables.show("grouped").build
    assert before is not None
    rows = tables.read("grouped").collect()
    with observing(fail_at(Step.LOCKED, duckdb.IOException("no answer"))):
        report = tables.refresh("grouped", on_error="report")
    assert report["grouped"].outcome == "failed"
    assert "no answer" in (report["grouped"].error or "")
    assert sorted(tables.read("grouped").collect(), key=str) == sorted(rows, key=str)
    assert tables.refresh()["grouped"].sequence == before.sequence + 2
    check_lake(tables)


def test_interrupted_by_the_user(tables: dt.DynamicTables) -> None:
    """Ctrl-C leaves the table as it was; the next refresh completes the same cut, then goes on."""
    before = tables.show("plain").build
    assert before is not None
    with (
        observing(fail_at(Step.LOCKED, KeyboardInterrupt())),
        pytest.raises(KeyboardInterrupt),
    ):
        tables.refresh("plain")
    intent = tables.store.intent(before.table_id)
    assert intent is not None
    tables.sql(MORE)
    tables.refresh()
    recovered = [r for r in tables.history("plain") if r.reason == "RECOVERED"]
    assert (recovered[0].sequence, recovered[0].cut) == (intent.sequence, intent.cut)
    check_lake(tables)


def test_a_lost_store_is_rebuilt(folder: Path) -> None:
    with open_lake(folder) as tables:
        before = {s.definition.name.name: s.definition for s in tables.list()}
    for file in folder.glob(f"{STORE_FILE}*"):
        file.unlink()
    with pytest.raises(dt.SetupError) as caught:
        open_lake(folder)
    assert caught.value.reason is dt.Reason.STORE_MISSING
    assert all(name in caught.value.message for name in before)
    with open_lake(folder, rebuild=True) as tables:
        assert not tables.rebuild()
        assert {s.definition.name.name: s.definition for s in tables.list()} == before
        check(tables)
        tables.sql(MORE)
        assert {r.outcome for r in tables.refresh().records} == {"done"}
        check_lake(tables)


def test_two_threads_refresh_one_table(tables: dt.DynamicTables, folder: Path) -> None:
    """One commits; the other, who comes in the middle of it, is told who has the table."""
    met, go = threading.Event(), threading.Event()
    outcome: list[dt.RefreshReport] = []

    def observer(step: Step, table: str) -> None:
        if step is Step.INTENDED and table == "main.grouped":
            met.set()
            assert go.wait(PATIENCE_S)

    before = tables.lake.standing(tables.show("grouped").definition).sequence
    with open_lake(folder) as other, observing(observer):
        first = threading.Thread(target=lambda: outcome.append(tables.refresh("grouped")))
        first.start()
        try:
            assert met.wait(PATIENCE_S)
            with pytest.raises(dt.RefreshFailed) as caught:
                other.refresh("grouped")
        finally:
            go.set()
            first.join()
    assert caught.value.reason is dt.Reason.HELD
    assert outcome[0]["grouped"].sequence == before + 1
    assert tables.lake.standing(tables.show("grouped").definition).sequence == before + 1
    check_lake(tables)


def test_a_number_is_taken_once(tables: dt.DynamicTables) -> None:
    """A late writer of n writes nothing; of two at the same moment, one does."""
    lake = tables.lake
    state = tables.show("plain")
    definition, build = state.definition, state.build
    assert build is not None
    stamp = _stamp(tables, lake.standing(definition).sequence + 1)
    with lake.work_area(definition, "one") as one, lake.work_area(definition, "two") as two:
        rows = one.compute(definition, build.pins, build.cut.instant)
        both = threading.Barrier(2)

        def write(area: WorkArea) -> None:
            both.wait(PATIENCE_S)
            area.fence(definition, stamp)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, (one, two)))
        after = lake.standing(definition)
        assert after.sequence == stamp.sequence
        newer = lake.commits(definition, build.version, after.version)
        assert [c.stamp for c in newer if c.stamp and c.stamp.writer == "test"] == [stamp]
        one.overwrite(rows, definition, stamp)  # n stands already: skipped
        assert lake.standing(definition) == after
    tables.refresh()
    check_lake(tables)


def test_numbers_outlive_the_snapshots_and_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots carry the numbers too, but they expire."""
    monkeypatch.setattr(own, "SWEPT", 2)
    folder, more = tmp_path / "lake", "INSERT INTO orders VALUES (9, 9, 9)"
    make_lake(folder)
    with open_lake(folder) as tables:
        for _ in range(3):
            tables.sql(more)
            tables.refresh()
        sequence = tables.lake.standing(tables.show("plain").definition).sequence
    with open_lake(folder) as again:
        again.sql("CALL ducklake_expire_snapshots('small_lake', older_than => now())")
        again.sql("CREATE TABLE touched (a INT)")
    with open_lake(folder) as again:
        definition = again.show("plain").definition
        assert again.lake.standing(definition).sequence == sequence
        numbers = again.sql(f"FROM _ivm_lake.numbers WHERE table_id = '{definition.table_id}'")
        assert len(numbers.collect()) <= 2
        again.sql(more)
        again.refresh()
        assert again.lake.standing(definition).sequence == sequence + 1
        check(again)


def _stamp(tables: dt.DynamicTables, sequence: int) -> Stamp:
    state = tables.show("plain")
    assert state.build is not None
    return Stamp(
        table_id=state.definition.table_id,
        refresh_id="test",
        sequence=sequence,
        cut=state.build.cut.as_json(),
        pins=[pin.as_json() for pin in state.build.pins],
        fingerprint=state.build.fingerprint,
        strategy="fence",
        base=state.build.version,
        writer="test",
    )


def test_a_second_process_is_told_who_has_the_lake(tables: dt.DynamicTables, folder: Path) -> None:
    code = f"import dynamic_tables as dt; dt.connect('ducklake:{folder}')"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "SetupError" in other.stderr
    assert "one process at a time [HELD]" in other.stderr


def test_a_reader_never_sees_a_state_between(tables: dt.DynamicTables, folder: Path) -> None:
    """A thread reads all the time; every answer is one of the committed states, never empty."""
    tables.sql("CREATE TABLE steps AS SELECT 0 AS round")
    tables.create("wide", "SELECT s.round, r.range AS id FROM steps s CROSS JOIN range(50) r")
    seen: set[tuple[int, int, int]] = set()
    stop, read_once = threading.Event(), threading.Event()

    def read() -> None:
        with open_lake(folder) as reader:
            while not stop.is_set():
                seen.update(
                    reader.sql("SELECT count(*), min(round), max(round) FROM wide").collect()
                )
                read_once.set()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for round_ in range(1, 4):
            assert read_once.wait(PATIENCE_S)
            tables.sql(f"UPDATE steps SET round = {round_}")
            tables.refresh("wide")
            read_once.clear()
    finally:
        stop.set()
        thread.join()
    assert seen <= {(50, n, n) for n in range(4)}
    assert len(seen) > 1
    tables.drop("wide")


def test_whoever_lost_its_claim_counts_no_failure(tables: dt.DynamicTables) -> None:
    """A refresh by hand, too: how the table fares is another's to judge by then."""
    tables.create("total", "SELECT count(*) AS n FROM orders")
    tables.sql(MORE)
    table_id = tables.show("total").definition.table_id
    other = Claimant(owner="other", host=this_host(), pid=1, expires_s=60.0)
    taken: list[Claim] = []

    def observer(step: Step, _table: str) -> None:
        if step is Step.PINNED:
            taken.append(tables.store.claim(table_id, "other", other, lambda *_: True))
            raise RefreshError("broken", reason=Reason.QUERY_FAILED, about="total", hint="")

    with observing(observer):
        record = tables.refresh("total", on_error="report")["total"]
    assert (record.reason, tables.show("total").failures) == (Reason.TAKEN_OVER, 0)
    assert tables.store.claims() == taken  # the late one released nothing of the other's
    tables.store.release(taken[0])
    assert tables.refresh("total").ok
    check(tables, "total")
