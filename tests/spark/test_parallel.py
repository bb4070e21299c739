"""One table refreshed by several workers, on Delta: the equation holds, nothing is left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynamic_tables as dt
from dynamic_tables.lake.places import local_path
from dynamic_tables.lake.slices import FOLDER
from oracle import check

pytestmark = pytest.mark.spark

SHARED = {"allow_parallel_refresh": True, "parallel_threshold": 4, "max_parallelism": 3}
WORKERS = 3
SOURCES = (
    """CREATE TABLE orders USING delta AS
    SELECT id, nullif(id % 11, 3) AS customer, id % 5 AS product FROM range(200)""",
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dt.DynamicTables]:
    """A lake with three idle workers, each with a connection and a session of its own."""
    folder = tmp_path_factory.mktemp("parallel") / "lake"
    flags = {"jvm": "quick", "say": lambda _: None, "poll_s": 0.1}
    opened = [dt.connect(folder, **flags)]
    for statement in SOURCES:  # an embedded catalog is filled when it is opened
        opened[0].sql(statement)
    opened += [dt.connect(folder, **flags) for _ in range(WORKERS)]
    workers = [other.worker(slots=1, say=print) for other in opened[1:]]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    yield opened[0]
    for worker in workers:
        worker.stop()
    for thread in threads:
        thread.join()
    for other in opened:
        other.close()


def staged(tables: dt.DynamicTables, name: str) -> list[Path]:
    """What lies in the staging place of a table."""
    place = local_path(tables.show(name).definition.location)
    assert place is not None
    return list((place / FOLDER).rglob("*"))


def settled(tables: dt.DynamicTables, name: str) -> None:
    check(tables, name)
    assert tables.store.subtasks() == []
    assert staged(tables, name) == []


def refreshed(tables: dt.DynamicTables, name: str, **how: object) -> dt.RefreshRecord:
    [record] = tables.refresh(name, **how).records
    settled(tables, name)
    return record


def test_keys_first_load_and_full_in_slices(tables: dt.DynamicTables) -> None:
    """An integer key with NULL; `count(DISTINCT …)` rules out `merge`."""
    tables.create(
        "variety",
        "SELECT customer, count(DISTINCT product) AS products, count(*) AS n"
        " FROM orders GROUP BY customer",
        initialize="ON_SCHEDULE",
        **SHARED,
    )
    tables.create("child", "SELECT sum(n) AS n FROM variety", initialize="ON_SCHEDULE")
    first = refreshed(tables, "variety")
    assert (first.action, first.strategy, first.slices) == ("initialize", "full", 3)
    tables.refresh("child")
    tables.sql("INSERT INTO orders SELECT 1000 + id, nullif(id, 3), 7 FROM range(9)")
    tables.sql("DELETE FROM orders WHERE customer = 10")
    done = refreshed(tables, "variety")
    assert (done.strategy, done.slices) == ("keys", 3)
    before = tables.show("variety").build
    assert before is not None
    full = refreshed(tables, "variety", strategy="full")
    assert (full.reason, full.slices) == ("FORCED", 3)
