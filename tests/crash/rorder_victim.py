"""Puts several tables in order at once, each to another step, and dies when all have arrived."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import dynamic_tables as dt
from dynamic_tables.steps import AnyStep, LayoutStep, observing

MEETING_S = 100.0


def main() -> None:
    tables = dt.connect(sys.argv[1], jvm="quick")
    meeting = threading.Barrier(len(LayoutStep), lambda: _die(tables), MEETING_S)

    def observer(reached: AnyStep, table: str) -> None:
        if table.endswith(f".{reached}"):
            print(f"{table} at {reached}", flush=True)
            meeting.wait()

    with observing(observer), ThreadPoolExecutor(len(LayoutStep)) as pool:
        for step in LayoutStep:
            pool.submit(dt.rorder, step.value, unique_by="k", spark=tables.spark)


def _die(tables: dt.DynamicTables) -> None:
    process = tables.spark.sparkContext._gateway.proc
    process.kill()
    process.wait()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
