"""A worker on Delta: lags by commit times, one cut, and a second JVM's worth of nothing lost."""

from __future__ import annotations

import pytest

import dynamic_tables as dt
from dynamic_tables.steps import Step, observing

pytestmark = pytest.mark.spark


def test_what_is_due_is_refreshed_at_one_cut(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE orders USING delta AS SELECT 1 AS id, 10 AS amount")
    tables.create("parent", "SELECT id, amount FROM orders", target_lag="DOWNSTREAM")
    tables.create("total", "SELECT sum(amount) AS n FROM parent", trigger_on_change=True)
    worker = tables.worker(slots=1, say=lambda _: None)
    assert worker.drain() == []
    tables.sql("INSERT INTO orders VALUES (2, 5)")
    source = tables.show("parent").definition.sources[0]
    first = tables.lake.changed_at(source, 0, 1)
    tables.sql("INSERT INTO orders VALUES (3, 6)")
    assert first is not None
    assert tables.lake.changed_at(source, 0, 2) == first
    assert tables.lake.changed_at(source, 2, 2) is None
    late = iter([True])

    def observer(step: Step, _table: str) -> None:
        if step is Step.CLAIMED and next(late, False):
            tables.sql("INSERT INTO orders VALUES (4, 7)")

    with observing(observer):
        done = worker.drain()
    assert [(record.table.name, record.outcome) for record in done] == [
        ("parent", "done"),
        ("total", "done"),
    ]
    assert done[0].cut == done[1].cut
    assert [row.n for row in tables.read("total").collect()] == [21]
    assert tables.show("total").failure is None
    assert tables.verify("total").ok
    assert len(worker.drain()) == 2
    assert [row.n for row in tables.read("total").collect()] == [28]
