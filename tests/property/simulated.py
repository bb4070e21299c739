"""The world of the simulation: processes that go on when they are told to, on one store and lake.

The store, the worker, the statements and the refresh are the real ones; lake and clock are not.
Each process runs in a thread of its own, and only when it is told to: it goes on to its next look
at the world or its next write, and waits there. So every run is repeatable, and no test waits for
time to pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, cast

from builders import definition
from memory_lake import GROUPED, KEYS, QUIET, Disk, MemoryLake, Value, touched
from sqlalchemy import event

from dynamic_tables.declare import Declarations
from dynamic_tables.definition import Source
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.model import Cut, Intent, RefreshReport, TableState
from dynamic_tables.options import Options
from dynamic_tables.refresh.claims import Heartbeats, created
from dynamic_tables.refresh.context import Context, Owner
from dynamic_tables.refresh.run import GraphRefresh, Request
from dynamic_tables.settings import load_settings
from dynamic_tables.store import Claim, open_store
from dynamic_tables.worker import Worker

START = datetime(2030, 1, 1, tzinfo=UTC)
EXPIRES_S = 60.0
PATIENCE_S = 60.0
FOR_EVER_S = 1e7  # simulated workers are counted as long as they are there
MANY_STEPS = 40  # more than any process needs that waits for nobody
SKEW_H = (-1, 0, 1)  # the processes' own clocks, in turn
WRITES = frozenset({
    "claim", "claim_next", "open_intent", "drop_intent", "record", "adopt_build", "finish",
    "hand_back", "release", "withdraw", "open_slices", "look_at_slices", "claim_subtask",
    "complete_subtask", "fail_subtask", "update_definition", "create_claimed", "delete_tables",
})  # fmt: skip


class Killed(BaseException):
    """The process is gone; nothing catches this."""


class Process:
    """One that goes on only when it is told to; here a worker, which does one thing and ends."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.dead, self.ended = world, False, False
        self._go, self._parked = threading.Semaphore(0), threading.Semaphore(0)
        self.context = Context(
            lake=cast("Any", MemoryLake(world.disk, self.pass_gate)),
            store=cast("Any", Gated(self)),
            settings=world.settings,
            clock=lambda: world.now + timedelta(hours=SKEW_H[number % len(SKEW_H)]),
            owner=Owner(host=f"simulated-{number}", pid=1),
        )
        self._failed: BaseException | None = None
        self._begin()
        threading.Thread(target=self._work, daemon=True).start()
        self._parked.acquire()

    def _begin(self) -> None:
        worker = Worker(self.context, slots=1, say=lambda _: None)
        self.hearts, self._act = worker._hearts, worker._once
        self.world.store.enter(replace(self.context.claimant, expires_s=FOR_EVER_S))

    def _work(self) -> None:
        try:
            self._act()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  told by `step`
            self._failed = error
        finally:
            self.ended = True
            self._parked.release()

    def check_alive(self) -> None:
        """A dead process does nothing any more."""
        if self.dead:
            raise Killed

    def pass_gate(self) -> None:
        """Wait for a turn."""
        self.check_alive()
        self._parked.release()
        self._go.acquire()
        self.check_alive()

    def step(self) -> None:
        """Let it go on to its next gate."""
        if self.ended:
            return
        self._go.release()
        assert self._parked.acquire(timeout=PATIENCE_S), "a process hangs"
        if self._failed is not None:
            raise self._failed

    def finish(self) -> None:
        """Let it go on to its end; what it waits for expires if nobody goes on with it."""
        for steps in count():
            if self.ended:
                return
            self.step()
            self.world.now += timedelta(seconds=5 if steps > MANY_STEPS else 0)

    def kill(self) -> None:
        self.dead = True
        self.step()

    def beat(self) -> None:
        for claim in list(self.hearts._claims.values()):
            self.world.store.heartbeat(claim)


class ByHand(Process):
    """Somebody types a statement. No worker is counted, no request waits in the queue."""

    def __init__(self, world: World, number: int, statement: Statement) -> None:
        self._statement = statement
        super().__init__(world, number)

    def _begin(self) -> None:
        self.hearts, self._act = Heartbeats(self.context), self._told

    def _told(self) -> None:
        with suppress(DynamicTablesError, *self.context.lake.faults):  # whoever typed it reads why
            self._statement(self)

    @property
    def declarations(self) -> Declarations:
        return Declarations(self.context, lambda _: None)


Statement = Callable[[ByHand], None]


def refresh(*names: str) -> Statement:
    """These tables; all, if none is named."""

    def typed(process: ByHand) -> None:
        there = {state.definition.name.name: state for state in process.world.store.tables()}
        ids = {there[name].definition.table_id for name in names if name in there}
        request = Request(table_ids=frozenset(ids) if names else None)
        GraphRefresh(process.context, request, process.hearts).run()

    return typed


def alter(name: str, most: int) -> Statement:
    """SET MAX_PARALLELISM; what was answered counts, what was not may count."""

    def typed(process: ByHand) -> None:
        state = process.world.state(name)
        if state is None:
            return
        possible = process.world.options.setdefault(
            state.definition.table_id, {state.definition.options.max_parallelism}
        )
        possible.add(most)
        process.declarations.set_options(state, {"max_parallelism": most})
        process.world.options[state.definition.table_id] = {most}

    return typed


def renew(name: str) -> Statement:
    """DROP the table, if it is there, and CREATE it: another one, of the same name."""

    def typed(process: ByHand) -> None:
        world, state = process.world, process.world.state(name)
        old = world.declared[name]
        if state is not None:
            process.declarations.drop(state, cascade=False)
        world.made += 1
        new = replace(old, table_id=f"{name}-{world.made}", location=f"file:/{name}-{world.made}")
        with created(process.context, new, f"create-{world.made}") as claim:
            process.declarations._made(new, claim)

    return typed


class Gated:
    """The store as one process sees it: each write waits for its turn."""

    def __init__(self, process: Process) -> None:
        self._process, self._world, self._store = process, process.world, process.world.store

    def __getattr__(self, name: str) -> Any:
        self._process.check_alive()
        method = getattr(self._store, name)
        if name == "waker":
            return lambda: GatedSleep(self._process.pass_gate)
        if name == "heartbeat" and threading.current_thread().name == "heartbeat":
            return lambda _claim: True  # a statement's own heart beats in real time: never here
        if name not in WRITES:
            return method

        def gated(*args: Any, **kwargs: Any) -> Any:
            self._process.pass_gate()
            done = method(*args, **kwargs)
            if name == "update_definition":
                self._world.changed_by(args[0])
            if name == "open_intent":
                self._world.opened(done)
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

    def __init__(
        self, folder: Path, url: str | None = None, *, on_change: bool = True, **flags: float
    ) -> None:
        self.now, self.disk = START, Disk()
        self.usurped: list[Claim] = []  # claims that were lost, and changed a definition
        self.meant: dict[tuple[str, int], list[Cut]] = {}  # cuts, by table id and number
        self.made = 0  # tables, after the first ones
        self.options: dict[str, set[int]] = {}  # what MAX_PARALLELISM may be, by table id
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
            trigger_on_change=on_change,
            allow_parallel_refresh=True,
            parallel_threshold=2,
            max_parallelism=2,
        )
        grouped = [replace(table, query=GROUPED) for table in (sibling, child)]
        tables = [replace(table, options=options) for table in (parent, *grouped)]
        self.declared = {table.name.name: table for table in tables}
        for table in tables:
            self.store.create_table(table)

    def _set_clock(self, connection: Any, _record: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        connection.create_function("strftime", 2, lambda _form, _now: self._clock_text())

    def _clock_text(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.now.microsecond // 1000:03d}"

    def changed_by(self, claim: Claim) -> None:
        """A definition was changed under this claim."""
        if claim.token not in {held.token for held in self.store.claims()}:
            self.usurped.append(claim)

    def opened(self, intent: Intent) -> None:
        """A number was begun, or found open."""
        cuts = self.meant.setdefault((intent.table_id, intent.sequence), [])
        if intent.cut not in cuts:
            cuts.append(intent.cut)

    def state(self, name: str) -> TableState | None:
        found = (state for state in self.store.tables() if state.definition.name.name == name)
        return next(found, None)

    @property
    def plain_context(self) -> Context:
        """Of a process that nobody stops."""
        return Context(
            lake=cast("Any", MemoryLake(self.disk, lambda: None)),
            store=self.store,
            settings=self.settings,
            clock=lambda: self.now,
            owner=Owner(host="simulated", pid=1),
        )

    def plain_worker(self) -> Worker:
        return Worker(self.plain_context, slots=1, say=lambda _: None)

    def refresh(self) -> RefreshReport:
        """By hand, everything."""
        context = self.plain_context
        return GraphRefresh(context, Request(), Heartbeats(context)).run()

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
