"""A worker whose tables stop at their steps; then it is killed, or stopped for a while.

    python worker_victim.py FOLDER STORE KIND TABLE=STEP [TABLE=STEP …]

Every table waits at its own step, in a slot of its own. When all have arrived, KIND happens, as in
`victim.py`. A worker that was stopped and goes on takes nothing new; it ends when its slots have.
"""

from __future__ import annotations

import sys
from pathlib import Path

from victim import EXPIRES_S, meeting, strike

import dynamic_tables as dt
from dynamic_tables.steps import Step, observing


def main() -> None:
    folder, store, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    plan = {name: Step(step) for name, _, step in (word.partition("=") for word in sys.argv[4:])}
    tables = dt.connect(folder, store=store, jvm="quick", claim_expires_s=EXPIRES_S, poll_s=0.2)
    worker = tables.worker(slots=len(plan), say=print)

    def struck() -> None:
        strike(tables, kind, folder)
        worker.stop()

    with observing(meeting(plan, struck)):
        worker.run()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
