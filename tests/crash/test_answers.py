"""Lost answers, two at once, paused processes: the number n decides, and everybody is told."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import PATIENCE_S, check_lake, start_victim, wait_until_stopped

import dynamic_tables as dt
from dynamic_tables.steps import Step, observing

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dt.DynamicTables]]:
    folder = tmp_path_factory.mktemp("answers") / "lake"
    tables = dt.connect(folder, jvm="quick", say=lambda _: None)
    tables.sql("CREATE TABLE orders (id INT, customer INT) USING delta")
    tables.sql("INSERT INTO orders VALUES (1, 1), (2, 1), (3, NULL)")
    tables.create("metrics", "SELECT customer, count(*) AS n FROM orders GROUP BY customer")
    yield folder, tables
    tables.close()


@pytest.fixture
def tables(lake: tuple[Path, dt.DynamicTables]) -> dt.DynamicTables:
    lake[1].sql("INSERT INTO orders SELECT max(id) + 1, max(id) % 3 FROM orders")
    return lake[1]


def fail_at(step: Step, error: Exception) -> Callable[[Step, str], None]:
    def observer(reached: Step, _table: str) -> None:
        if reached is step:
            raise error

    return observer


def test_commit_landed_answer_lost(tables: dt.DynamicTables) -> None:
    """The commit is found by its number and recorded; nothing is written twice."""
    before = tables.show("metrics").build
    assert before is not None
    with observing(fail_at(Step.COMMITTED, ConnectionError("answer lost"))):
        record = tables.refresh()["metrics"]
    assert record.outcome == "done"
    assert record.sequence == before.sequence + 1
    check_lake(tables)


def test_answer_lost_commit_not_landed(tables: dt.DynamicTables) -> None:
    """The number is fenced off, the table is as it was, the next refresh takes the next number."""
    before = tables.show("metrics").build
    assert before is not None
    rows = tables.read("metrics").collect()
    with observing(fail_at(Step.LOCKED, ConnectionError("no answer"))):
        report = tables.refresh(on_error="report")
    assert report["metrics"].outcome == "failed"
    assert "no answer" in (report["metrics"].error or "")
    assert sorted(tables.read("metrics").collect(), key=str) == sorted(rows, key=str)
    assert tables.refresh()["metrics"].sequence == before.sequence + 2
    check_lake(tables)


def test_interrupted_by_the_user(tables: dt.DynamicTables) -> None:
    """Ctrl-C leaves the table as it was; the next refresh completes the same cut, then goes on."""
    before = tables.show("metrics").build
    assert before is not None
    with (
        observing(fail_at(Step.LOCKED, KeyboardInterrupt())),  # type: ignore[arg-type]
        pytest.raises(KeyboardInterrupt),
    ):
        tables.refresh()
    intent = tables.store.intent(before.table_id)
    assert intent is not None
    assert intent.sequence == before.sequence + 1
    tables.refresh()
    recovered = [r for r in tables.history("metrics") if r.reason == "RECOVERED"]
    assert recovered[0].sequence == intent.sequence
    assert recovered[0].cut == intent.cut
    check_lake(tables)


def test_a_cut_that_is_gone_is_given_up(tables: dt.DynamicTables) -> None:
    """The files of an open refresh's versions were vacuumed: its number is fenced off."""
    tables.create("kid", "SELECT count(*) AS n FROM metrics")  # so that the rows are compared
    with (
        observing(fail_at(Step.INTENDED, KeyboardInterrupt())),  # type: ignore[arg-type]
        pytest.raises(KeyboardInterrupt),
    ):
        tables.refresh("metrics")
    tables.sql("UPDATE orders SET customer = 1")
    tables.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    tables.sql("VACUUM orders RETAIN 0 HOURS")
    assert tables.refresh("metrics")["metrics"].outcome == "done"
    tables.drop("kid")
    check_lake(tables)


def test_paused_process_wakes_up_too_late_and_two_at_once(
    lake: tuple[Path, dt.DynamicTables], tables: dt.DynamicTables
) -> None:
    """A claim expires, another completes the number; who wakes up is skipped and told so.

    Then both at once: one commits, the other is told who has the table.
    """
    folder, _ = lake
    victim = start_victim(folder, "stop+wait", {"metrics": Step.INTENDED})
    wait_until_stopped(victim)
    before = _refresh_when_free(tables)
    assert before.outcome == "done"
    os.kill(victim.pid, signal.SIGCONT)
    tables.sql("INSERT INTO orders SELECT max(id) + 1, max(id) % 3 FROM orders")
    (folder / "next").touch()

    _wait_for(folder / "waiting")
    with pytest.raises(dt.RefreshFailed) as caught:
        tables.refresh("metrics")
    assert caught.value.reason is dt.Reason.HELD
    assert caught.value.exit_code_for_cli == 5
    assert f"process {victim.pid}" in str(caught.value)
    (folder / "go").touch()
    output, _ = victim.communicate(timeout=PATIENCE_S)
    words = [line for line in output.splitlines() if " at " not in line]
    assert words == ["TAKEN_OVER", "done"], output
    after = tables.show("metrics").build
    assert after is not None
    assert after.sequence == (before.sequence or 0) + 1
    check_lake(tables)


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} did not come"
        time.sleep(0.05)


def _refresh_when_free(tables: dt.DynamicTables) -> dt.RefreshRecord:
    """Refresh as soon as the paused process's claim has expired."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        report = tables.refresh(on_error="report")
        if report["metrics"].reason != "HELD" or time.monotonic() > deadline:
            return report["metrics"]
        time.sleep(0.1)


def test_a_reader_never_sees_a_state_between(tables: dt.DynamicTables) -> None:
    """A thread reads all the time; every answer is one of the committed states, never empty."""
    tables.sql("CREATE TABLE steps (round INT) USING delta")
    tables.sql("INSERT INTO steps VALUES (0)")
    tables.create("wide", "SELECT s.round, r.id FROM steps s CROSS JOIN range(50) r")
    tables.create("kid", "SELECT count(*) AS n FROM wide")
    seen: set[tuple[int, int, int]] = set()
    stop = threading.Event()

    failed: list[Exception] = []

    def read() -> None:
        session = tables.spark.newSession()
        while not stop.is_set():
            try:
                row = session.sql("SELECT count(*), min(round), max(round) FROM wide").collect()[0]
            except Exception as error:  # noqa: BLE001  told below
                failed.append(error)
                return
            seen.add((row[0], row[1], row[2]))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for round_ in range(1, 3):
            tables.sql(f"UPDATE steps SET round = {round_}")
            tables.refresh("wide", strategy="full" if round_ % 2 else None)
    finally:
        stop.set()
        reader.join()
    assert failed == []
    assert seen <= {(50, n, n) for n in range(3)}
    assert len(seen) > 1
    tables.drop("wide", cascade=True)
