"""PostgreSQL is stopped at once and started again during refreshes on Delta, shared ones too.

Workers give a refresh back when their store is away. Whoever takes it up completes the same cut
under the same number, with the slices that are finished.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from outages import Outage, check_recorded, survive, until_fresh, working
from sliced import AnyStep, SlicedLake, sliced_lake
from victim import EXPIRES_S

from dynamic_tables.reasons import Reason
from dynamic_tables.steps import SliceStep, Step, observing
from dynamic_tables.store import Claimant, Subtask
from dynamic_tables.store.waking import Waker
from postgres import Postgres

pytestmark = pytest.mark.spark
LONG = pytest.mark.timeout(1800)  # a refresh or more for each step
AWAY = pytest.mark.parametrize("away", [False, True], ids=["restarted", "away"])

REFRESHED = tuple(step for step in Step if step not in (Step.DEFINED, Step.LAID_OUT))
SLICED = (Step.INTENDED, *SliceStep, Step.LOCKED, Step.COMMITTED, Step.RECORDED)
MakeLake = Callable[..., SlicedLake]


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server of its own: others must not notice."""
    made = Postgres()
    yield made
    made.close()


@pytest.fixture
def make_lake(server: Postgres, tmp_path: Path) -> Iterator[MakeLake]:
    """Tables that a worker refreshes when `orders` changes."""
    flags = {"claim_expires_s": EXPIRES_S, "lock_wait_s": 2, "retry_s": 0.2, "on_change": True}
    with ExitStack() as opened:

        def make(size: int, **more: object) -> SlicedLake:
            made = sliced_lake(
                tmp_path / "lake", size=size, store=server.new_database(), **flags, **more
            )
            return opened.enter_context(made)

        yield make


def test_a_slice_is_written_while_the_store_is_away(server: Postgres, make_lake: MakeLake) -> None:
    survive(make_lake(1), Outage(server=server, away=True), SliceStep.WRITTEN)


@LONG
@pytest.mark.soak
@AWAY
def test_refreshes_go_on_after_an_outage(server: Postgres, make_lake: MakeLake, away: bool) -> None:
    """At every step of refreshes that one worker does alone, with a table below."""
    lake = make_lake(2, parallel_refresh="off")
    below = "SELECT customer, sum(n) AS n FROM t0 GROUP BY customer"
    lake.tables.create("below", below, trigger_on_change=True)
    for at in REFRESHED:
        survive(lake, Outage(server=server, away=away), at)


@LONG
@pytest.mark.soak
@AWAY
def test_shared_refreshes_go_on_after_an_outage(
    server: Postgres, make_lake: MakeLake, away: bool
) -> None:
    """At every step of slices and of those who put them together."""
    lake = make_lake(2)
    for at in SLICED:
        survive(lake, Outage(server=server, away=away), at)
    done = [record for record in lake.tables.history(limit=1000) if record.slices]
    assert len(done) == 2 * len(SLICED)


class Struck:
    """A sleeper to whom something happens when it listens already, and is about to sleep again."""

    def __init__(self, real: Waker, happens: Callable[[], None]) -> None:
        self._real, self._happens = real, happens
        self._listens = False

    def sleep(self, seconds: float, stop: threading.Event) -> None:
        if self._listens:
            self._happens()
        self._listens = True
        self._real.sleep(seconds, stop)

    def close(self) -> None:
        self._real.close()


@pytest.mark.soak
@AWAY
def test_a_coordinator_waits_when_the_store_goes(
    server: Postgres, make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """For the slice of a worker that gives it back in the same moment."""
    lake, outage = make_lake(1), Outage(server=server, away=away)
    store, waker = lake.tables.store, lake.tables.store.waker
    other = Claimant(owner="other", host="elsewhere", pid=1, expires_s=1e6)
    held: list[Subtask] = []

    def happens() -> None:
        if held:
            lost = Reason.SUBTASKS_LOST.value
            assert store.fail_subtask(held.pop(), lost, "its worker died", final=False)
            outage.happen()

    def observer(reached: AnyStep, _table: str) -> None:
        if reached is SliceStep.SHARED:
            held.extend(filter(None, [store.claim_subtask(other)]))
            monkeypatch.setattr(store, "waker", lambda: Struck(waker(), happens))

    lake.change()
    with observing(observer), working(lake, outage):
        until_fresh(lake, outage)
    assert outage.over.is_set()
    check_recorded(lake)
