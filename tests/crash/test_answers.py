"""Lost answers, two at once, paused processes: the number n decides, and everybody is told."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import PATIENCE_S, check_lake, start_victim, wait_for, wait_until_stopped

import dynamic_tables as dt
from dynamic_tables.steps import Step, observing
from oracle import bag

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dt.DynamicTables]]:
    """`metrics` is written by difference, `plain` whole."""
    folder = tmp_path_factory.mktemp("answers") / "lake"
    tables = dt.connect(folder, jvm="quick", say=lambda _: None)
    tables.sql("CREATE TABLE orders (id INT, customer INT) USING delta")
    tables.sql("INSERT INTO orders VALUES (1, 1), (2, 1), (3, NULL)")
    for name, query in {
        "metrics": "SELECT customer, count(*) AS n FROM orders GROUP BY customer",
        "child": "SELECT count(*) AS n FROM metrics",
        "plain": "SELECT id FROM orders",
    }.items():
        mode = "FULL" if name == "plain" else "AUTO"
        tables.create(name, query, initialize="ON_SCHEDULE", refresh_mode=mode)
    tables.refresh()
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


def test_answer_lost_commit_not_landed(tables: dt.DynamicTables) -> None:
    """The number is fenced off, the table is as it was, the next refresh takes the next number.

    Meanwhile a thread reads all the time: every answer is one of the committed states.
    """
    before = tables.show("metrics").build
    assert before is not None
    states = [tables.read("metrics").collect()]
    with reading(tables, "SELECT * FROM metrics") as seen:
        with observing(fail_at(Step.LOCKED, ConnectionError("no answer"))):
            report = tables.refresh("metrics", on_error="report")
        assert report["metrics"].outcome == "failed"
        assert "no answer" in (report["metrics"].error or "")
        states.append(tables.read("metrics").collect())
        assert tables.refresh("metrics")["metrics"].sequence == before.sequence + 2
        states.append(tables.read("metrics").collect())
    assert bag(states[0]) == bag(states[1]) != bag(states[2])
    assert {frozenset(answer.items()) for answer in seen} == {
        frozenset(bag(state).items()) for state in states
    }
    check_lake(tables, "metrics")


@contextmanager
def reading(tables: dt.DynamicTables, query: str) -> Iterator[list[Counter[str]]]:
    """Read from another thread, as often as it goes."""
    seen: list[Counter[str]] = []
    stop, failed = threading.Event(), []

    def read() -> None:
        session = tables.spark.newSession()
        try:
            while not stop.wait(0.1):
                seen.append(bag(session.sql(query).collect()))
        except Exception as error:  # noqa: BLE001  told below
            failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()
    assert failed == []


def test_a_cut_that_is_gone_is_given_up(tables: dt.DynamicTables) -> None:
    """The files of an open refresh's versions were vacuumed: its number is fenced off."""
    with (
        observing(fail_at(Step.INTENDED, KeyboardInterrupt())),  # type: ignore[arg-type]
        pytest.raises(KeyboardInterrupt),
    ):
        tables.refresh("metrics")
    before = tables.show("metrics").build
    assert before is not None
    tables.sql("UPDATE orders SET customer = 1")
    tables.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    tables.sql("VACUUM orders RETAIN 0 HOURS")
    record = tables.refresh("metrics")["metrics"]
    assert (record.outcome, record.sequence) == ("done", before.sequence + 2)
    check_lake(tables, "metrics")


def test_a_foreign_commit_between_comparison_and_merge(tables: dt.DynamicTables) -> None:
    """Somebody's rows arrive after ours were compared: the next refresh finds out and mends."""
    foreign = f"INSERT INTO {tables.show('metrics').definition.name.sql} VALUES (77, 7)"

    def observer(reached: Step, _table: str) -> None:
        if reached is Step.LOCKED:
            tables.spark.sql(foreign)

    with observing(observer):
        assert tables.refresh("metrics")["metrics"].outcome == "done"
    assert [row.n for row in tables.read("metrics").where("customer = 77").collect()] == [7]
    record = tables.refresh("metrics")["metrics"]
    assert (record.strategy, record.reason) == ("full", "FOREIGN_CHANGE")
    check_lake(tables, "metrics")


def test_paused_process_wakes_up_too_late_and_two_at_once(
    lake: tuple[Path, dt.DynamicTables], tables: dt.DynamicTables
) -> None:
    """Claims expire. Another process completes one number and fences the other off, because the
    table has a new query by then; who wakes up is skipped both times and told so.

    Then both at once: one commits, the other is told who has the table.
    """
    folder, _ = lake
    victim = start_victim(folder, "stop+wait", {"metrics": Step.INTENDED, "plain": Step.INTENDED})
    wait_until_stopped(victim)
    before = _refresh_when_free(tables)
    assert before.outcome == "done", before.error
    fenced = tables.show("plain").build
    assert fenced is not None
    tables.create("plain", "SELECT id + 1 AS id FROM orders", or_alter=True)
    os.kill(victim.pid, signal.SIGCONT)
    tables.sql("INSERT INTO orders SELECT max(id) + 1, max(id) % 3 FROM orders")
    (folder / "next").touch()

    wait_for(folder / "waiting")
    with pytest.raises(dt.RefreshFailed) as caught:
        tables.refresh("metrics")
    assert caught.value.reason is dt.Reason.HELD
    assert caught.value.exit_code_for_cli == 5
    assert f"process {victim.pid}" in str(caught.value)
    (folder / "go").touch()
    output, _ = victim.communicate(timeout=PATIENCE_S)
    words = [line for line in output.splitlines() if " at " not in line]
    assert words == ["TAKEN_OVER TAKEN_OVER", "done"], output
    for name, number in {"metrics": before.sequence or 0, "plain": fenced.sequence + 2}.items():
        after = tables.show(name).build
        assert after is not None
        assert after.sequence == number + 1
    check_lake(tables, "metrics", "plain")


def _refresh_when_free(tables: dt.DynamicTables) -> dt.RefreshRecord:
    """Refresh as soon as the paused process's claim has expired."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        report = tables.refresh("metrics", on_error="report")
        if report["metrics"].reason != "HELD" or time.monotonic() > deadline:
            return report["metrics"]
        time.sleep(0.1)
