"""What other processes do in the tests; each function is the target of a spawned process."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import store_builders as make
from sqlalchemy import event

from dynamic_tables.errors import Held
from dynamic_tables.store import open_store

# Processes of their own, which share their imports: a server imports once, and forks. It looks for
# modules only where PYTHONPATH says, and is silent if it does not find them.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["store_processes"])


def open_and_count(url: str) -> int:
    with open_store(url) as store:
        return len(store.tables())


def claim_often(url: str, tables: list[str], times: int, folder: str) -> list[int]:
    """Claim and release; while a claim is live, a file of the table's name exists exactly once."""
    tokens = []
    with open_store(url) as store:
        for turn in range(times):
            table_id = tables[turn % len(tables)]
            claim = None
            while claim is None:
                try:
                    claim = store.claim(table_id, "r", make.claimant(os.getpid()))
                except Held:
                    time.sleep(0.002)
            mark = Path(folder) / table_id
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails if another claim is live
            assert store.heartbeat(claim)
            mark.unlink()
            assert store.release(claim)
            tokens.append(claim.token)
    return tokens


def work_often(url: str, times: int) -> list[tuple[int, int]]:
    """Take so many requests, and ask for each table anew when it is through."""
    taken: list[tuple[int, int]] = []
    me = make.claimant(os.getpid())
    with open_store(url) as store:
        while len(taken) < times:
            found = store.claim_next(me)
            if found is not None:
                claim, request = found
                taken.append((claim.token, request.request_no))
                assert store.finish(claim, request)
                store.request(request)
    return taken


def share(url: str, folder: str, turns: int, seconds: float, seed: int) -> int:
    """Work on what is there, for so many turns or seconds; now and then leave something undone.

    While a claim is live, a file of its table's name exists exactly once.
    """
    chance = random.Random(seed)
    careful, careless = make.claimant(os.getpid()), make.claimant(os.getpid(), expires_s=0.0)
    deadline, done = time.monotonic() + seconds, 0
    with open_store(url) as store:
        while done < turns and time.monotonic() < deadline:
            leaves = chance.random() < 0.1
            found = store.claim_next(careless if leaves else careful)
            if found is None:
                continue
            done += 1
            if leaves:
                continue  # its claim has expired already: others take over
            claim, request = found
            mark = Path(folder) / claim.table_id
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails if another claim is live
            assert store.heartbeat(claim)
            mark.unlink()
            assert store.finish(claim, request)
            store.request(request)
    return done


def die_before_commit(url: str) -> None:
    """Record a refresh and die of SIGKILL when everything is written but the COMMIT."""
    store = open_store(url)
    claim = store.claim("id-by_customer", "refresh-2", make.claimant(os.getpid()))
    store.open_intent(claim, make.intent(2, at=8))

    def die(_connection: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    event.listen(store._engine, "commit", die)
    store.record(claim, make.record(2), make.build(2, 2, 8), close_intent=2, failures="count")


def claim_subtasks(url: str, pid: int) -> list[tuple[int, int]]:
    """Take slices until there are none: (slice, token) of each."""
    taken: list[tuple[int, int]] = []
    with open_store(url) as store:
        while (found := store.claim_subtask(make.claimant(pid))) is not None:
            assert found.token is not None
            taken.append((found.slice_no, found.token))
    return taken
