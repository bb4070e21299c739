"""Processes that claim, pause, crash, expire and resume, in every order that Hypothesis thinks of.

Workers and statements by hand, in the world of `simulated`: the store, the worker and the refresh
are the real ones; lake and clock are not.

The long run is divided by seeds, each of which plays LIVES_A_SEED lives of 100 steps:
`SIMULATION_SEEDS=0:200 bash scripts/test -m soak tests/property/test_worker_simulation.py -s`
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
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
from memory_lake import AFTER, BEFORE
from simulated import EXPIRES_S, ByHand, Process, Statement, World, alter, refresh, renew

from dynamic_tables.model import Cut, Outcome, TableState
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.states import FENCE

WORKERS = range(3)
HAND = len(WORKERS)  # the number of a process that is no worker, but works by hand
EVERYBODY = (*WORKERS, HAND)
STATEMENTS = {
    "refresh": refresh(),
    "refresh sibling": refresh("sibling"),
    "refresh child": refresh("child"),
    "alter sibling to 2": alter("sibling", 2),
    "alter sibling to 3": alter("sibling", 3),
}
MOST_OVERTAKES = 2  # in one life: each takes as long as ten other steps
DEEP = 20  # steps into a refresh: as far as to the slices of others
MOST_BREAKS = 12  # in one life: slices that fail and are tried again
MOST_BAD_ROWS = 4  # in one life: slices on which the query fails
MOST_UNANSWERED = 6  # in one life: commits that fail
LIVES_A_SEED = 50  # of a long run: a seed stays within the time that a test may take


class Simulation(RuleBasedStateMachine):
    """Three workers with a schedule, and somebody who works by hand."""

    seen: ClassVar[Counter[str]] = Counter()  # what all lives together consisted of

    @initialize(on_change=st.sampled_from([True, True, False]))
    def begin(self, *, on_change: bool) -> None:
        """Where tables have no contract, nothing is asked for but what somebody left open."""
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name), on_change=on_change)
        self.on_change = on_change
        self.processes: dict[int, Process] = {}
        self.checked: Counter[str] = Counter()  # commits, by table id
        self.overtakes = self.breaks = self.bad_rows = self.unanswered = 0

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
        asked = self.world.plain_worker().ask()
        if not self.on_change:
            self.seen["left open"] += len(asked)

    def _is_over(self, number: int) -> bool:
        process = self.processes.get(number)
        return process is None or process.ended

    def _begin(self, number: int) -> None:
        if number in self.processes:
            self.world.store.leave(self.processes[number].context.claimant.owner)
        self.processes[number] = Process(self.world, number)

    @rule(number=st.sampled_from(WORKERS), steps=st.integers(1, 9))
    def go_on(self, number: int, steps: int) -> None:
        if self._is_over(number):
            self._begin(number)
        for _ in range(steps):
            self.processes[number].step()

    @rule(words=st.sampled_from(sorted(STATEMENTS)), steps=st.integers(1, DEEP))
    def by_hand(self, words: str, steps: int) -> None:
        """Type a statement, or go on with the one before."""
        if self._is_over(HAND):
            self._type(STATEMENTS[words])
        for _ in range(steps):
            self.processes[HAND].step()

    def _type(self, statement: Statement) -> None:
        self.processes[HAND] = ByHand(self.world, HAND, statement)

    @precondition(lambda self: self._is_over(HAND) and not self.world.made)
    @rule(steps=st.integers(1, DEEP))
    def drop_and_create(self, steps: int) -> None:
        """Once in a life; who was at the old table finds it gone, and writes nothing to the new."""
        self._type(renew("child"))
        for _ in range(steps):
            self.processes[HAND].step()

    def _come_to(self, number: int, steps: int) -> None:
        if number == HAND:
            self.by_hand("refresh", steps)
        else:
            self.go_on(number, steps)

    @precondition(lambda self: self.overtakes < MOST_OVERTAKES)
    @rule(number=st.sampled_from(EVERYBODY), steps=st.integers(1, DEEP))
    def overtake(self, number: int, steps: int) -> None:
        """One pauses somewhere for too long; another one does its work meanwhile."""
        self.overtakes += 1
        self.change("orders")
        self.ask()
        self._come_to(number, steps)
        self.wait(EXPIRES_S + 1)
        if number == HAND:
            self.ask()
        other = (number + 1) % len(WORKERS)
        self.go_on(other, 1)
        self.processes[other].finish()

    @rule(number=st.sampled_from(EVERYBODY))
    def kill(self, number: int) -> None:
        if (process := self.processes.pop(number, None)) is not None:
            process.kill()

    @rule(number=st.sampled_from((*EVERYBODY, HAND)), steps=st.integers(1, DEEP))
    def crash(self, number: int, steps: int) -> None:
        """One dies in the middle of something, as coordinator or with a slice."""
        self._come_to(number, steps)
        self.kill(number)

    @precondition(lambda self: self.breaks < MOST_BREAKS)
    @rule(slices=st.integers(1, 5))
    def break_slices(self, slices: int) -> None:
        """The next ones fail, for whoever computes them; after three retries, the refresh."""
        self.breaks += slices
        self.world.disk.breaks += slices

    @precondition(lambda self: self.bad_rows < MOST_BAD_ROWS)
    @rule(slices=st.integers(1, 2), unanswered=st.booleans())
    def spoil_rows(self, slices: int, *, unanswered: bool) -> None:
        """The query fails on the next slices: nobody tries again before the data have changed. The
        lake may be away just when the refresh is to be given up."""
        self.bad_rows += slices
        self.world.disk.bad_rows += slices
        if unanswered:
            self.lose_answers([BEFORE])

    @precondition(lambda self: self.unanswered < MOST_UNANSWERED)
    @rule(lost=st.lists(st.sampled_from([BEFORE, AFTER]), min_size=1, max_size=3))
    def lose_answers(self, lost: list[str]) -> None:
        """The next commits fail, be they rows or fences; before they happen or after."""
        self.unanswered += len(lost)
        self.world.disk.unanswered += lost

    @rule(number=st.sampled_from(EVERYBODY))
    def beat(self, number: int) -> None:
        if number in self.processes:
            self.processes[number].beat()

    @rule(seconds=st.sampled_from([1, 20, 45, 61]))
    def wait(self, seconds: float) -> None:
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
    def no_number_means_two_cuts(self) -> None:
        """Not even one that failed and was given up."""
        assert all(len(cuts) == 1 for cuts in self.world.meant.values())

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
        world = self.world
        world.disk.breaks, world.disk.bad_rows, world.disk.unanswered = 0, 0, []
        for process in self.processes.values():
            process.finish()
        self._go_on_to_the_end()
        self._check_nothing_open()  # whatever it waited for, it was not for other data
        for base in world.disk.bases:  # so that all tables are refreshed once more
            self.change(base)
        self._go_on_to_the_end()
        if not self.on_change:
            self._check_nothing_open()
            assert world.refresh().ok  # nobody else does
        self.every_number_stands_once_and_is_right()
        for state in world.store.tables():
            self._check_table(state)
        self._check_nothing_open()
        assert world.store.claims() == []
        there = {state.definition.table_id for state in world.store.tables()}
        staged = {key for key, places in world.disk.staged.items() if places}
        assert not staged & there  # what the dead had staged was found
        self._check_history()

    def _go_on_to_the_end(self) -> None:
        for _ in range(3):  # claims of the dead expire; what failed for a rival is tried again
            self.world.now += timedelta(seconds=1000)
            last = self.world.plain_worker()
            self.ask()
            while last._once():
                pass

    def _check_nothing_open(self) -> None:
        """Whoever began it, whether or not anybody had asked for it."""
        store = self.world.store
        assert not any(store.intent(state.definition.table_id) for state in store.tables())
        assert store.pending() == store.subtasks() == []

    def _check_table(self, state: TableState) -> None:
        world, definition = self.world, state.definition
        assert state.build is not None
        newest = {f"id-{base}": len(times) - 1 for base, times in world.disk.bases.items()}
        assert state.build.cut.versions.items() <= newest.items()
        stored = world.disk.tables[definition.table_id]
        assert stored.values[state.build.version] == world.expected(
            definition.table_id, state.build.cut
        )
        assert stored.definition == definition
        assert (state.status, state.failure) == ("active", None)
        possible = world.options.get(definition.table_id, {definition.options.max_parallelism})
        assert definition.options.max_parallelism in possible  # no ALTER was lost

    def _check_history(self) -> None:
        history = self.world.store.history(limit=10_000)
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
    for what in ("keys shared, CHANGED", "full shared, RECOVERED", "None alone, ENGINE_FAILED"):
        assert seen[what] > 0, seen  # rarer ones need longer lives, and have tests of their own


def soak_seeds() -> range:
    first, last = os.environ.get("SIMULATION_SEEDS", "0:200").split(":")
    return range(int(first), int(last))


@pytest.mark.soak
@pytest.mark.parametrize("number", soak_seeds())
def test_long_lives(number: int) -> None:
    print(sorted(play(number, lives=LIVES_A_SEED, steps=100).items()))
