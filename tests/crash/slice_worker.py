"""A worker that is killed when it reaches a step with a slice of another one's refresh.

python slice_worker.py FOLDER STEP
"""

from __future__ import annotations

import os
import signal
import sys
import time

import dynamic_tables as dt
from dynamic_tables.steps import SliceStep, observing

EXPIRES_S = 2.0


def main() -> None:
    folder, step = sys.argv[1], SliceStep(sys.argv[2])

    def observer(reached: SliceStep, _table: str) -> None:
        if reached is step:
            os.kill(os.getpid(), signal.SIGKILL)

    with dt.connect(folder, jvm="quick", claim_expires_s=EXPIRES_S, say=lambda _: None) as tables:
        worker = tables.worker(slots=1, say=lambda _: None)
        print("ready", flush=True)
        with observing(observer):
            while True:
                worker._once()
                time.sleep(0.05)


if __name__ == "__main__":
    main()
