"""PostgreSQL is stopped at once (`-m immediate`) at a step of a refresh, and started again."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from harness import PATIENCE_S
from sliced import AnyStep, SlicedLake

import dynamic_tables as dt
from dynamic_tables.steps import observing
from postgres import Postgres

IN_A_SLOT = "slot"  # how the names of threads begin that refresh


@dataclass(slots=True, kw_only=True)
class Outage:
    """Happens once. A store that is away is back when the refresh has given up because of it."""

    server: Postgres
    away: bool  # else it is back at once
    said: list[str] = field(default_factory=list)  # by the worker
    chances: Iterator[bool] = field(default_factory=lambda: iter([True]))
    happened: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def happen(self) -> None:
        if not next(self.chances, False):
            return  # another thread came first
        self.server.stop("immediate")
        self.happened.set()
        if not self.away:
            self._end()

    def hear(self, message: str) -> None:
        """What a worker says when its store is away."""
        self.said.append(message)
        refreshes = threading.current_thread().name.startswith(IN_A_SLOT)
        if self.away and refreshes and self.happened.is_set() and not self.over.is_set():
            self._end()

    def _end(self) -> None:
        self.server.start()
        self.over.set()


@contextmanager
def working(lake: SlicedLake, outage: Outage) -> Generator[None]:
    """A worker; alone where all of it has to wait for the store, else with a second slot."""
    worker = lake.tables.worker(slots=1 if outage.away else 2, say=outage.hear)
    worker.ask()  # those that are counted and never come would do it: they have been there longer
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(PATIENCE_S)
    assert not thread.is_alive(), outage.said


def survive(lake: SlicedLake, outage: Outage, at: AnyStep) -> None:
    """Whatever is refreshed then reaches the newest cut, and is recorded once."""

    def observer(reached: AnyStep, _table: str) -> None:
        if reached is at:
            outage.happen()

    lake.change()
    with observing(observer), working(lake, outage):
        until_fresh(lake, outage)
    assert outage.over.is_set()
    check_recorded(lake)


def until_fresh(lake: SlicedLake, outage: Outage) -> None:
    """Wait for the outage to be over, and for the worker to have nothing to do."""
    [newest] = lake.tables.sql("DESCRIBE HISTORY orders LIMIT 1").collect()
    deadline = time.monotonic() + PATIENCE_S
    while not outage.over.is_set() or not _is_fresh(lake, newest.version):
        assert time.monotonic() < deadline, outage.said
        time.sleep(0.1)


def _is_fresh(lake: SlicedLake, version: int) -> bool:
    store = lake.tables.store
    try:
        busy, states = [*store.pending(), *store.claims()], store.tables()
    except dt.DynamicTablesError:
        return False  # it is away
    reached = {v for state in states if state.build for v in state.build.cut.versions.values()}
    return not busy and reached == {version}


def check_recorded(lake: SlicedLake) -> None:
    """The equation, nothing left, and every number of every table in history, once."""
    lake.check()
    for state in lake.tables.list():
        records = lake.tables.history(str(state.definition.name), limit=1000)
        done = [item.sequence for item in records if item.version and item.strategy != "no_data"]
        assert done == list(range(len(done), 0, -1)), records
