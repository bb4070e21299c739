"""A worker whose tables stop at their steps; then it is killed, or stopped for a while.

    python worker_victim.py FOLDER STORE KIND TABLE=STEP [TABLE=STEP …]

Every table waits at its own step, in a slot of its own. When all have arrived, KIND happens, as in
`victim.py`. A worker that was stopped and goes on takes nothing new; it ends when its slots have.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from victim import EXPIRES_S, MEETING_S, strike

import dynamic_tables as dt
from dynamic_tables.steps import AnyStep, Step, observing


def main() -> None:
    folder, store, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    plan = {name: Step(step) for name, _, step in (word.partition("=") for word in sys.argv[4:])}
    tables = dt.connect(folder, store=store, jvm="quick", claim_expires_s=EXPIRES_S, poll_s=0.2)
    worker = tables.worker(slots=len(plan), say=print)
    arrived: set[str] = set()

    def struck() -> None:
        strike(tables, kind, folder)
        worker.stop()

    meeting = threading.Barrier(len(plan), struck, MEETING_S)

    def observer(reached: AnyStep, table: str) -> None:
        name = table.rpartition(".")[2]
        if plan.get(name) is reached and name not in arrived:
            arrived.add(name)
            print(f"{name} at {reached.value}", flush=True)
            try:
                meeting.wait()
            except threading.BrokenBarrierError:
                print("not all came", flush=True)
                os._exit(1)

    with observing(observer):
        worker.run()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
