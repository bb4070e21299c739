"""One table, many workers: a dimension changes and with it two fifths of all customers.

50M orders of 25M customers in five countries; two countries are renamed, which affects 10M
customers. In turn: the refresh by one worker, and the same refresh shared with four others, each a
process with a JVM of its own. Told are the times, how the work was shared, and the memory that each
process had at most. On a machine with few cores the workers take turns: what sharing brings there
is the memory that one process needs, not the time. All heaps together must fit: five of HEAP.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import arguments, report

import dynamic_tables as dt
from dynamic_tables.lake.places import local_path
from dynamic_tables.lake.slices import FOLDER
from dynamic_tables.steps import SliceStep, observing

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
COUNTRIES, RENAMED = 5, 2
ROWS, QUICK_ROWS = 50_000_000, 200_000  # orders; half as many customers
HEAP = "3g"  # of each process
PATIENCE_S = 300.0
QUERY = """
SELECT o.customer, max(k.name) AS country, count(*) AS orders,
       count(DISTINCT o.product) AS products, sum(o.amount) AS amount
FROM orders o JOIN customers c ON o.customer = c.customer JOIN countries k ON c.country = k.country
GROUP BY o.customer
"""
WORKER = """
import signal, sys
import dynamic_tables as dt

with dt.connect(sys.argv[1], memory=sys.argv[2], poll_s=0.5, say=lambda _: None) as tables:
    worker = tables.worker(slots=1, say=print)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything."""

    orders: int
    workers: int

    @property
    def customers(self) -> int:
        return self.orders // 2

    @property
    def affected(self) -> int:
        return self.customers * RENAMED // COUNTRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One refresh, whose result was checked."""

    seconds: float
    record: dt.RefreshRecord
    slices: Counter[int]  # computed, by process id
    peaks: dict[int, int]  # the most memory, MB, by process id


def say(what: str) -> None:
    """A long run tells how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def prepare(tables: dt.DynamicTables, size: Size) -> None:
    tables.sql(
        f"CREATE TABLE orders USING delta {FEED} AS SELECT id, id % {size.customers} AS customer,"
        f" pmod(id * 7919, 101) AS product, CAST(pmod(id * 31, 1000) AS DECIMAL(10, 2)) AS amount"
        f" FROM range({size.orders})"
    )
    tables.sql(
        f"CREATE TABLE customers USING delta {FEED} AS"
        f" SELECT id AS customer, id % {COUNTRIES} AS country FROM range({size.customers})"
    )
    tables.sql(
        f"CREATE TABLE countries USING delta {FEED} AS"
        f" SELECT id AS country, concat('country ', id) AS name FROM range({COUNTRIES})"
    )
    tables.create(
        "customer_metrics",
        QUERY,
        refresh_mode="INCREMENTAL",
        parallel_threshold=size.affected // 2,  # about a quarter of the affected keys a worker
        allow_parallel_refresh=False,
    )


@contextmanager
def workers(folder: Path, tables: dt.DynamicTables, size: Size) -> Iterator[list[int]]:
    """Processes that wait for slices; their ids."""
    command = [sys.executable, "-c", WORKER, str(folder), HEAP]
    started = [subprocess.Popen(command) for _ in range(size.workers)]
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(tables.store.workers()) < size.workers:
            assert time.monotonic() < deadline, "not all workers came"
            time.sleep(0.5)
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait()


def peak_mb(pid: int, *, without: Collection[int] = ()) -> int:
    """The most memory that a process and its children (the JVM) have had at once, each; `without`
    those that are told apart: workers are children of the coordinator.

    A child that has ended and that nobody asked after yet has none.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    own = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0) // 1024
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return own + sum(peak_mb(child) for child in children if child not in without)


def refreshed(tables: dt.DynamicTables, number: int, pids: list[int]) -> Measured:
    """Rename two countries, refresh, and check that the table equals its query."""
    tables.sql(
        f"UPDATE countries SET name = concat('renamed ', {number}, ' ', country)"
        f" WHERE country < {RENAMED}"
    )
    slices: Counter[int] = Counter()

    def observer(step: object, _table: str) -> None:
        if step is SliceStep.GATHERED:
            slices.update(item.pid for item in tables.store.subtasks() if item.pid)

    begun = time.perf_counter()
    with observing(observer):
        [record] = tables.refresh("customer_metrics", strategy="keys").records
    seconds = time.perf_counter() - begun
    peaks = {pid: peak_mb(pid, without=pids) for pid in (os.getpid(), *pids)}
    say(f"refreshed in {seconds:.0f} s, {record.slices or 'no'} slices")
    check(tables)
    say("checked")
    return Measured(seconds=seconds, record=record, slices=slices, peaks=peaks)


def check(tables: dt.DynamicTables) -> None:
    """The table and its query are the same bag of rows, and nothing is left of the slices.

    Two sums of different hashes and a count tell bags apart without sorting them side by side.
    """
    assert bag(tables, "SELECT * FROM customer_metrics") == bag(tables, QUERY)
    place = local_path(tables.show("customer_metrics").definition.location)
    assert place is not None
    assert not (place / FOLDER).exists(), "something is left of the slices"


def bag(tables: dt.DynamicTables, query: str) -> tuple[object, ...]:
    row = "customer, country, orders, products, amount"
    [found] = tables.sql(
        f"SELECT count(*), sum(CAST(xxhash64({row}) AS DECIMAL(20, 0))),"
        f" sum(CAST(hash({row}) AS DECIMAL(20, 0))) FROM ({query})"
    ).collect()
    return tuple(found)


def measure(folder: Path, size: Size) -> str:
    flags: Mapping[str, object] = {
        "memory": HEAP,
        "poll_s": 0.5,
        "parallel_worth_s": 0,  # else the refresh alone may tell that it is not worth to share
    }
    with dt.connect(folder, **flags) as tables:
        prepare(tables, size)
        say("prepared")
        alone = refreshed(tables, 0, [])
        assert alone.record.slices is None
        tables.alter("customer_metrics", allow_parallel_refresh=True)
        with workers(folder, tables, size) as pids:
            say("workers came")
            shared = refreshed(tables, 1, pids)
        assert shared.record.slices == shared.slices.total() == size.workers, shared
    return told(alone, shared)


def told(alone: Measured, shared: Measured) -> str:
    me, record = os.getpid(), shared.record
    others = [pid for pid in shared.peaks if pid != me]
    steps = ", ".join(f"{step} {ms / 1000:.1f} s" for step, ms in record.steps_ms.items() if ms)
    way = f"{record.slices} slices, {len(others)} workers and the coordinator"
    rows = [f"| worker | {shared.slices[pid]} | {shared.peaks[pid]} |" for pid in others]
    lines = [
        "| way | s | ratio |",
        "|---|---|---|",
        f"| one worker | {alone.seconds:.1f} | 1.00 |",
        f"| {way} | {shared.seconds:.1f} | {shared.seconds / alone.seconds:.2f} |",
        "",
        f"| process | slices | memory at most, Python and JVM, MB (heap {HEAP}) |",
        "|---|---|---|",
        f"| alone, after the first load | | {alone.peaks[me]} |",
        f"| the same as coordinator | {shared.slices[me]} | {shared.peaks[me]} |",
        *rows,
        "",
        "The table equals its query after both, as a bag of rows; nothing is left of the slices.",
        f"Steps of the coordinator: {steps}.",
    ]
    return "\n".join(lines)


def in_folder(work: Callable[[Path], str]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="dynamic-tables-benchmark-"))
    try:
        return work(folder / "lake")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    given = arguments(__doc__, rows=ROWS)
    rows = QUICK_ROWS if given.quick else given.rows
    size = Size(orders=rows, workers=2 if given.quick else 4)
    text = in_folder(lambda folder: measure(folder, size))
    title = (
        f"One table, many workers: {size.orders:,} orders, {size.affected:,} of"
        f" {size.customers:,} customers change"
    )
    report(title + (" (`--quick`)" if given.quick else ""), text, save=given.save)


if __name__ == "__main__":
    main()
