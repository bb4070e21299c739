"""What only time can tell: a NOTIFY that wakes sleepers, heartbeats that outlast an expiry.

PostgreSQL with its own clock, the real worker and refresh, a lake in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from memory_lake import MemoryLake
from simulated import World
from test_sharing import GROUPED_TABLE, SLICES, TABLE, leave_to_people, someone

from dynamic_tables.errors import Held
from dynamic_tables.model import Cut
from dynamic_tables.refresh.context import Context, Owner
from dynamic_tables.refresh.run import GraphRefresh, Request
from dynamic_tables.steps import AnyStep, SliceStep, observing
from dynamic_tables.store import WantedRefresh
from dynamic_tables.worker import Worker
from postgres import Postgres

PATIENCE_S = 60
POLL_S = 600.0  # longer than anybody here waits
EXPIRES_S = 2.0
LASTS_S = 2 * EXPIRES_S
SOON_S = 0.5  # then whoever has nothing to do sleeps

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(postgres: Postgres, tmp_path: Path) -> Iterator[MakeWorld]:
    """Nothing is due by itself, and so many workers are counted that refreshes are shared."""
    made: list[World] = []

    def make(**flags: float) -> World:
        world = World(tmp_path, postgres.new_database(), **flags)
        made.append(world)
        leave_to_people(world)
        for number in range(SLICES):
            world.store.enter(someone(number))
        return world

    yield make
    for world in made:
        world.store.close()


def context(world: World, host: str) -> Context:
    return Context(
        lake=cast("Any", MemoryLake(world.disk, lambda: None)),
        store=world.store,
        settings=world.settings,
        owner=Owner(host=host, pid=1),
    )


def by_hand(world: World) -> GraphRefresh:
    return GraphRefresh(context(world, "by hand"), Request(table_ids=frozenset({TABLE})))


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_notify_wakes_whoever_sleeps(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle worker for slices and for tables, and a coordinator when its last slice is there."""
    world = make_world(poll_s=POLL_S)
    idle = Worker(context(world, "idle"), slots=1, say=lambda _: None)
    rests, may_compute = threading.Event(), threading.Event()
    rest = idle._rest

    def resting(*heard: int) -> None:
        rests.set()
        rest(*heard)

    def is_taken() -> bool:
        owner = idle._context.claimant.owner
        return owner in {item.claimed_by for item in world.store.subtasks(TABLE)}

    def observer(step: AnyStep, table: str) -> None:
        in_slot = threading.current_thread().name.startswith("slot")
        if not table.endswith(TABLE):
            return
        if step is SliceStep.SHARED:
            until(is_taken)
        elif step is SliceStep.CLAIMED and in_slot:
            assert may_compute.wait(PATIENCE_S)
        elif step is SliceStep.COMPLETED and not in_slot:  # from now on it can only wait
            threading.Timer(SOON_S, may_compute.set).start()

    monkeypatch.setattr(idle, "_rest", resting)
    thread = threading.Thread(target=idle.run, daemon=True)
    with observing(observer):
        thread.start()
        assert rests.wait(PATIENCE_S)
        time.sleep(SOON_S)
        begun = time.monotonic()
        [record] = by_hand(world).run().records
        assert (record.outcome, record.slices) == ("done", SLICES)
        cut = Cut(versions={"id-orders": 0, "id-items": 0}, instant=world.store.now())
        world.store.request(
            WantedRefresh(
                table_id=GROUPED_TABLE,
                refresh_id="r",
                trigger="schedule",
                cut=cut,
                behind_since=None,
            )
        )
        until(lambda: any(r.outcome == "done" for r in world.store.history(GROUPED_TABLE)))
        assert time.monotonic() - begun < POLL_S / 2
        idle.stop()
        thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_slot_that_is_called_while_it_looks_looks_again(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was called for may have come after it looked: it does not sleep over it."""
    worker = Worker(context(make_world(poll_s=POLL_S), "idle"), slots=1, say=lambda _: None)
    looks: list[int] = []

    def once() -> bool:
        looks.append(len(looks))
        if len(looks) == 1:
            worker._wake_slots()
        else:
            worker.stop()
        return False

    monkeypatch.setattr(worker, "_once", once)
    thread = threading.Thread(target=worker._slot, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert len(looks) == 2


def test_heartbeats_keep_table_and_slice_while_work_lasts(make_world: MakeWorld) -> None:
    """Twice as long as a claim lives without them; a rival tries all the time."""
    world = make_world(claim_expires_s=EXPIRES_S)
    store, rival = world.store, replace(someone(9), expires_s=EXPIRES_S)
    refresh, tries = by_hand(world), 0

    def observer(step: AnyStep, _table: str) -> None:
        nonlocal tries
        if step is SliceStep.SHARED:  # the other slice is somebody else's
            assert store.claim_subtask(someone(0)) is not None
        if step is SliceStep.CLAIMED:
            ends = time.monotonic() + LASTS_S
            while time.monotonic() < ends:
                with pytest.raises(Held):
                    store.claim(TABLE, "rival", rival)
                assert store.claim_subtask(rival, TABLE) is None
                tries += 1
                time.sleep(0.02)
            refresh._stopping.set()

    with observing(observer):
        [record] = refresh.run().records
    assert record.reason == "INTERRUPTED"
    assert tries > 10
    statuses = {item.claimed_by: item.status for item in store.subtasks(TABLE)}
    assert sorted(statuses.values()) == ["claimed", "completed"]
    assert statuses[someone(0).owner] == "claimed"
