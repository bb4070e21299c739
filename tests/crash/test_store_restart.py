"""PostgreSQL is stopped at once and started again while workers work: nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynamic_tables as dt
from dynamic_tables.steps import Step, observing
from postgres import Postgres

PATIENCE_S = 120


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server of its own: others must not notice."""
    made = Postgres()
    yield made
    made.close()


@pytest.mark.parametrize("at", [Step.CLAIMED, Step.INTENDED, Step.COMMITTED, Step.RECORDED])
def test_work_goes_on_after_a_restart(server: Postgres, tmp_path: Path, at: Step) -> None:
    said: list[str] = []
    with dt.connect(
        f"ducklake:{tmp_path / 'lake'}",
        store=server.new_database(),
        say=lambda _: None,
        poll_s=0.05,
        retry_s=0.05,
        claim_expires_s=1.0,
    ) as tables:
        tables.sql("CREATE TABLE orders AS SELECT 1 AS amount")
        tables.create("total", "SELECT sum(amount) AS n FROM orders", trigger_on_change=True)
        tables.create("twice", "SELECT 2 * n AS n FROM total", trigger_on_change=True)
        worker = tables.worker(slots=2, say=said.append)
        restarts = iter([True])
        fresh = threading.Event()

        def observer(step: Step, table: str) -> None:
            if step is at and next(restarts, False):
                server.stop("immediate")
                server.start()
            if step is Step.RECORDED and table.endswith("twice"):
                fresh.set()

        thread = threading.Thread(target=worker.run)
        with observing(observer):
            tables.sql("INSERT INTO orders VALUES (2)")
            thread.start()
            while tables.read("twice").fetchall() != [(6,)]:
                assert fresh.wait(PATIENCE_S), said
                fresh.clear()
            worker.stop()
            thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert next(restarts, None) is None
        tables.worker(slots=1, say=said.append).drain()
        for name in ("total", "twice"):
            assert tables.verify(name).ok
            numbers = [record.sequence for record in tables.history(name) if record.sequence]
            assert max(numbers) == tables.show(name).build.sequence  # ty: ignore
        assert tables.store.pending() == []
