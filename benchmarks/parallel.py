"""One table, many workers: a dimension changes and with it two fifths of all customers.

50M orders of 25M customers in five countries; two countries are renamed, which affects 10M
customers. In turn: the refresh by one worker, and the same refresh shared with four others, each a
process with a JVM of its own. Told are the times, how the work was shared, and the memory that each
process had at most. On a machine with few cores the workers take turns: what sharing brings there
is the memory that one process needs, not the time.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import arguments, report

import dynamic_tables as dt
from dynamic_tables.lake.places import local_path
from dynamic_tables.lake.slices import FOLDER

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
COUNTRIES, RENAMED = 5, 2
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
    customers: int
    workers: int
    memory: str  # heap of each process

    @property
    def affected(self) -> int:
        return self.customers * RENAMED // COUNTRIES


FULL_SIZE = Size(orders=50_000_000, customers=25_000_000, workers=4, memory="2g")
QUICK = Size(orders=200_000, customers=100_000, workers=2, memory="1g")


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
    command = [sys.executable, "-c", WORKER, str(folder), size.memory]
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


def peak_mb(pid: int) -> int:
    """The most memory that a process and its children (the JVM) have had at once, each."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(peak_mb(int(child)) for child in children)


def refreshed(tables: dt.DynamicTables, number: int) -> tuple[float, dt.RefreshRecord]:
    """Rename two countries, refresh, and check that the table equals its query."""
    tables.sql(
        f"UPDATE countries SET name = concat('renamed ', {number}, ' ', country)"
        f" WHERE country < {RENAMED}"
    )
    begun = time.perf_counter()
    [record] = tables.refresh("customer_metrics", strategy="keys").records
    seconds = time.perf_counter() - begun
    assert tables.verify("customer_metrics").ok
    place = local_path(tables.show("customer_metrics").definition.location)
    assert place is not None
    assert not (place / FOLDER).exists(), "something is left of the slices"
    return seconds, record


def measure(folder: Path, size: Size) -> str:
    flags: Mapping[str, object] = {"memory": size.memory, "poll_s": 0.5}
    with dt.connect(folder, **flags) as tables:
        prepare(tables, size)
        alone_s, alone = refreshed(tables, 0)
        assert alone.slices is None
        alone_mb = peak_mb(os.getpid())
    with dt.connect(folder, **flags) as tables:
        tables.alter("customer_metrics", allow_parallel_refresh=True)
        with workers(folder, tables, size) as pids:
            shared_s, shared = refreshed(tables, 1)
            assert shared.slices == size.workers, shared
            each = [peak_mb(pid) for pid in pids]
    return told(alone_s, shared_s, alone_mb, each, shared)


def told(
    alone_s: float, shared_s: float, alone_mb: int, each: Sequence[int], shared: dt.RefreshRecord
) -> str:
    told_s = f"{shared_s:.1f} | {shared_s / alone_s:.2f} | workers: {', '.join(map(str, each))}"
    steps = ", ".join(f"{step} {ms / 1000:.1f} s" for step, ms in shared.steps_ms.items() if ms)
    return "\n".join(
        [
            "| way | s | ratio | memory at most, Python and JVM, MB |",
            "|---|---|---|---|",
            f"| one worker | {alone_s:.1f} | 1.00 | {alone_mb} |",
            f"| {shared.slices} slices, {len(each)} workers and the coordinator | {told_s} |",
            "",
            f"The table equals its query after both. Steps of the coordinator: {steps}.",
        ]
    )


def in_folder(work: Callable[[Path], str]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="dynamic-tables-benchmark-"))
    try:
        return work(folder / "lake")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    given = arguments(__doc__)
    size = QUICK if given.quick else FULL_SIZE
    text = in_folder(lambda folder: measure(folder, size))
    title = (
        f"One table, many workers: {size.orders:,} orders, {size.affected:,} of"
        f" {size.customers:,} customers change"
    )
    report(title + (" (`--quick`)" if given.quick else ""), text, save=given.save)


if __name__ == "__main__":
    main()
