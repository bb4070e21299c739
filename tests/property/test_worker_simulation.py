"""Workers that claim, pause, crash, expire and resume, in every order that Hypothesis thinks of.

The store, the worker and the refresh are the real ones; lake and clock are not. Each worker runs in
a thread of its own, and only when it is told to: it goes on to its next look at the world or its
next write, and waits there. So every run is repeatable, and no test waits for time to pass.

The long run is divided by seeds, each of which plays LIVES_A_SEED lives of 100 steps:
`SIMULATION_SEEDS=0:200 bash scripts/test -m soak tests/property/test_worker_simulation.py -s`
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from builders import definition
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from memory_lake import GROUPED, KEYS, QUIET, Disk, MemoryLake, Value, touched
from sqlalchemy import event

from dynamic_tables.definition import Source
from dynamic_tables.model import Cut, Outcome
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.context import Context, Owner
from dynamic_tables.refresh.states import FENCE
from dynamic_tables.settings import load_settings
from dynamic_tables.store import Claim, Store, open_store
from dynamic_tables.worker import Worker

START = datetime(2030, 1, 1, tzinfo=UTC)
EXPIRES_S = 60.0
PATIENCE_S = 60.0
WORKERS = range(3)
MOST_OVERTAKES = 2  # in one life: each takes as long as ten other steps
FOR_EVER_S = 1e7  # simulated workers are counted as long as they are there
MANY_STEPS = 40  # more than any worker needs that waits for nobody
DEEP = 20  # steps into a refresh: as far as to the slices of others
MOST_BREAKS = 12  # in one life: slices that fail and are tried again
LIVES_A_SEED = 50  # of a long run: a seed stays within the time that a test may take
SKEW_H = (-1, 0, 1)  # the workers' own clocks
WRITES = frozenset({
    "claim", "claim_next", "open_intent", "drop_intent", "record", "adopt_build", "finish",
    "hand_back", "release", "withdraw", "open_slices", "look_at_slices", "claim_subtask",
    "complete_subtask", "fail_subtask", "update_definition",
})  # fmt: skip


class Killed(BaseException):
    """The process is gone; nothing catches this."""


class Process:
    """One worker, which goes on only when it is told to."""

    def __init__(self, world: World, number: int) -> None:
        self.dead = self.ended = False
        self._go, self._parked = threading.Semaphore(0), threading.Semaphore(0)
        self.context = Context(
            lake=cast("Any", MemoryLake(world.disk, self.pass_gate)),
            store=cast("Any", Gated(world, self.pass_gate)),
            settings=world.settings,
            clock=lambda: world.now + timedelta(hours=SKEW_H[number]),
            owner=Owner(host=f"simulated-{number}", pid=1),
        )
        self.worker = Worker(self.context, slots=1, say=lambda _: None)
        world.store.enter(replace(self.context.claimant, expires_s=FOR_EVER_S))
        self._failed: BaseException | None = None
        threading.Thread(target=self._work, daemon=True).start()
        self._parked.acquire()

    def _work(self) -> None:
        try:
            self.worker._once()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  told by `step`
            self._failed = error
        finally:
            self.ended = True
            self._parked.release()

    def pass_gate(self) -> None:
        """Wait for a turn; a dead process does nothing any more."""
        if self.dead:
            raise Killed
        self._parked.release()
        self._go.acquire()
        if self.dead:
            raise Killed

    def step(self) -> None:
        """Let it go on to its next gate."""
        if self.ended:
            return
        self._go.release()
        assert self._parked.acquire(timeout=PATIENCE_S), "a worker hangs"
        if self._failed is not None:
            raise self._failed

    def finish(self, world: World) -> None:
        """Let it go on to its end; what it waits for expires if nobody goes on with it."""
        for steps in count():
            if self.ended:
                return
            self.step()
            world.now += timedelta(seconds=5 if steps > MANY_STEPS else 0)

    def kill(self) -> None:
        self.dead = True
        self.step()

    def beat(self, store: Store) -> None:
        for claim in list(self.worker._hearts._claims.values()):
            store.heartbeat(claim)


class Gated:
    """The store as one process sees it: each write waits for its turn."""

    def __init__(self, world: World, pass_gate: Any) -> None:
        self._world, self._store, self._pass_gate = world, world.store, pass_gate

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name == "waker":
            return lambda: GatedSleep(self._pass_gate)
        if name not in WRITES:
            return method

        def gated(*args: Any, **kwargs: Any) -> Any:
            self._pass_gate()
            done = method(*args, **kwargs)
            if name == "update_definition":
                self._world.changed_by(args[0])
            return done

        return gated


class GatedSleep:
    """Whoever sleeps wakes up at its next turn."""

    def __init__(self, pass_gate: Any) -> None:
        self._pass_gate = pass_gate

    def sleep(self, _seconds: float, _stop: threading.Event) -> None:
        self._pass_gate()

    def close(self) -> None:
        return None


class World:
    """Store, lake and clock that all workers share; a store in PostgreSQL has a clock of its own,
    which is the real one."""

    def __init__(self, folder: Path, url: str | None = None, **flags: float) -> None:
        self.now, self.disk = START, Disk()
        self.usurped: list[Claim] = []  # claims that were lost, and changed a definition
        self.settings = load_settings(
            {"claim_expires_s": EXPIRES_S, "threads": 1, "failures_until_suspended": 100, **flags},
            environment={},
            folder=folder,
        )
        self.store = open_store(url or folder / "store.db")
        if url is None:
            event.listen(self.store._engine, "connect", self._set_clock)
            self.store._engine.dispose()  # the next connections have our clock
        for base in ("orders", "items"):
            self.disk.bases[base] = [START]
        parent = definition("parent", reads=("orders",))
        sibling = definition("sibling", reads=("orders", "items"))
        child = definition("child", reads=("items",), dynamic=("parent", "sibling"))
        options = Options.from_kwargs(
            trigger_on_change=True,
            allow_parallel_refresh=True,
            parallel_threshold=2,
            max_parallelism=2,
        )
        grouped = [replace(table, query=GROUPED) for table in (sibling, child)]
        for table in (parent, *grouped):
            self.store.create_table(replace(table, options=options))

    def _set_clock(self, connection: Any, _record: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        connection.create_function("strftime", 2, lambda _form, _now: self._clock_text())

    def _clock_text(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.now.microsecond // 1000:03d}"

    def changed_by(self, claim: Claim) -> None:
        """A definition was changed under this claim."""
        if claim.token not in {held.token for held in self.store.claims()}:
            self.usurped.append(claim)

    def plain_worker(self) -> Worker:
        """One that nobody stops."""
        context = Context(
            lake=cast("Any", MemoryLake(self.disk, lambda: None)),
            store=self.store,
            settings=self.settings,
            clock=lambda: self.now,
            owner=Owner(host="simulated", pid=1),
        )
        return Worker(context, slots=1, say=lambda _: None)

    def expected(self, table_id: str, cut: Cut) -> Value:
        """What a table's query gives at a cut, all the way down."""
        found = self.disk.tables[table_id].definition
        below = [(source, self._read(source, cut)) for source in found.sources]
        if found.query != GROUPED:
            return (found.name.name, *(value for _, value in below))
        rows = ((key, *(self._of_key(*pair, key) for pair in below)) for key in KEYS)
        return (found.name.name, *rows)

    def _read(self, source: Source, cut: Cut) -> Value:
        if source.dynamic_id:
            return self.expected(source.dynamic_id, cut)
        return (source.name.name, cut.versions[f"id-{source.name.name}"])

    def _of_key(self, source: Source, value: Value, key: int | None) -> Value:
        """What a source, read as a whole, says about one key."""
        if source.dynamic_id is None:
            changed = (v for v in range(1, value[1] + 1) if touched(v) == key and v % QUIET)
            return (value[0], max(changed, default=0))
        if self.disk.tables[source.dynamic_id].definition.query != GROUPED:
            return value
        return {row[0]: row for row in value[1:]}[key]


class Simulation(RuleBasedStateMachine):
    """Three workers and a schedule."""

    seen: ClassVar[Counter[str]] = Counter()  # what all lives together consisted of

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name))
        self.processes: dict[int, Process] = {}
        self.checked: Counter[str] = Counter()  # commits, by table id
        self.overtakes = self.breaks = 0

    @rule(base=st.sampled_from(["orders", "items"]), versions=st.integers(1, 5))
    def change(self, base: str, versions: int = 1) -> None:
        for _ in range(versions):
            self.world.now += timedelta(milliseconds=1)
            self.world.disk.bases[base].append(self.world.now)

    @rule(type_=st.sampled_from(["int", "bigint", "double"]))
    def retype(self, type_: str) -> None:
        """What queries return has another type: who recomputes a table changes its definition."""
        self.world.disk.type = type_

    @rule()
    def ask(self) -> None:
        self.world.plain_worker().ask()

    @rule(number=st.sampled_from(WORKERS), steps=st.integers(1, 9))
    def go_on(self, number: int, steps: int) -> None:
        process = self.processes.get(number)
        if process is None or process.ended:
            if process is not None:
                self.world.store.leave(process.context.claimant.owner)
            process = self.processes[number] = Process(self.world, number)
        for _ in range(steps):
            process.step()

    @precondition(lambda self: self.overtakes < MOST_OVERTAKES)
    @rule(number=st.sampled_from(WORKERS), steps=st.integers(1, DEEP))
    def overtake(self, number: int, steps: int) -> None:
        """One pauses somewhere for too long; another one does its work meanwhile."""
        self.overtakes += 1
        self.change("orders")
        self.ask()
        self.go_on(number, steps)
        self.wait(61)
        other = (number + 1) % len(WORKERS)
        self.go_on(other, 1)
        self.processes[other].finish(self.world)

    @rule(number=st.sampled_from(WORKERS))
    def kill(self, number: int) -> None:
        if (process := self.processes.pop(number, None)) is not None:
            process.kill()

    @rule(number=st.sampled_from(WORKERS), steps=st.integers(1, DEEP))
    def crash(self, number: int, steps: int) -> None:
        """One dies in the middle of something, as coordinator or with a slice."""
        self.go_on(number, steps)
        self.kill(number)

    @precondition(lambda self: self.breaks < MOST_BREAKS)
    @rule(slices=st.integers(1, 5))
    def break_slices(self, slices: int) -> None:
        """The next ones fail, for whoever computes them; after three retries, the refresh."""
        self.breaks += slices
        self.world.disk.breaks += slices

    @rule(number=st.sampled_from(WORKERS))
    def beat(self, number: int) -> None:
        if number in self.processes:
            self.processes[number].beat(self.world.store)

    @rule(seconds=st.sampled_from([1, 20, 45, 61]))
    def wait(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    @invariant()
    def every_number_stands_once_and_is_right(self) -> None:
        for table_id, stored in self.world.disk.tables.items():
            stamps = [commit.stamp for commit in stored.commits]
            assert [stamp.sequence for stamp in stamps] == list(range(1, len(stamps) + 1))
            known = self.checked[table_id]
            for stamp, value in zip(stamps[known:], stored.values[known:], strict=True):
                if stamp.strategy != FENCE:
                    assert value == self.world.expected(table_id, Cut.from_json(stamp.cut))
            self.checked[table_id] = len(stamps)

    @invariant()
    def no_table_goes_back(self) -> None:
        for stored in self.world.disk.tables.values():
            cuts = [c.stamp.cut["versions"] for c in stored.commits if c.stamp.strategy != FENCE]
            for older, newer in pairwise(cuts):
                assert all(newer[key] >= version for key, version in older.items())

    @invariant()
    def who_lost_its_claim_changes_no_definition(self) -> None:
        """Neither in the store nor in the lake, which has none that the store did not accept."""
        assert self.world.usurped == []
        for state in self.world.store.tables():
            stored = self.world.disk.tables.get(state.definition.table_id)
            if stored is not None and stored.definition != state.definition:
                assert stored.definition.revision < state.definition.revision

    def teardown(self) -> None:
        """Whatever happened: all workers end, another one goes on, and everything is up to date."""
        try:
            self._settle()
        finally:
            for process in self.processes.values():
                process.kill()
            self.world.store.close()
            self.folder.cleanup()

    def _settle(self) -> None:
        self.world.disk.breaks = 0
        for process in self.processes.values():
            process.finish(self.world)
        world = self.world
        for base in world.disk.bases:  # so that all tables are refreshed once more
            self.change(base)
        for _ in range(3):  # claims of the dead expire; what failed for a rival is tried again
            world.now += timedelta(seconds=1000)
            last = world.plain_worker()
            last.ask()
            while last._once():
                pass
        self.every_number_stands_once_and_is_right()
        newest = {f"id-{base}": len(times) - 1 for base, times in world.disk.bases.items()}
        for state in world.store.tables():
            assert state.build is not None
            assert state.build.cut.versions.items() <= newest.items()
            stored = world.disk.tables[state.definition.table_id]
            found = stored.values[state.build.version]
            assert found == world.expected(state.definition.table_id, state.build.cut)
            assert stored.definition == state.definition
            assert world.store.intent(state.definition.table_id) is None
            assert (state.status, state.failure) == ("active", None)
        assert world.store.pending() == world.store.claims() == world.store.subtasks() == []
        assert not any(world.disk.staged.values())  # what the dead had staged was found
        history = world.store.history(limit=10_000)
        assert [record.error for record in history if record.reason is Reason.INTERNAL] == []
        done = [r for r in history if r.outcome is Outcome.DONE and r.strategy != "no_data"]
        written = [(r.table_id, r.sequence) for r in done]
        assert len(written) == len(set(written))  # who lost its claim records nothing
        for record in history:
            how = "shared" if record.slices else "alone"
            self.seen[f"{record.strategy} {how}, {record.reason}"] += 1


UNHURRIED = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def play(number: int | None, *, lives: int, steps: int) -> Counter[str]:
    """Lives of so many steps, the same ones again if a number is given; what was seen in them."""
    lived = type("Lives", (Simulation,), {"seen": Counter()})
    if number is not None:
        seed(number)(lived)
    how = settings(max_examples=lives, stateful_step_count=steps, **UNHURRIED)
    run_state_machine_as_test(lived, settings=how)
    return lived.seen


def test_whatever_happens_to_workers_every_number_stands_once_and_is_right() -> None:
    seen = play(None, lives=200, steps=50)
    for strategy in ("keys", "full"):
        for reason in ("CHANGED", "RECOVERED") if strategy == "keys" else ("RECOVERED",):
            assert seen[f"{strategy} shared, {reason}"] > 0, seen


def soak_seeds() -> range:
    first, last = os.environ.get("SIMULATION_SEEDS", "0:200").split(":")
    return range(int(first), int(last))


@pytest.mark.soak
@pytest.mark.parametrize("number", soak_seeds())
def test_long_lives(number: int) -> None:
    print(sorted(play(number, lives=LIVES_A_SEED, steps=100).items()))
