"""The coordinator: one refresh shared among workers, and merged in one commit.

The intent (n, cut) is opened first, so that whoever takes over completes the same cut under the
same n. Then the affected keys are staged, split; then the slices are written to the store in one
transaction, and idle workers compute them (see `subtasks`), this one too while it waits. A slice is
right as long as its intent is open, because it was computed at the intent's cut: a successor uses
those that are finished.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError, Held, RefreshError
from dynamic_tables.lake.base import Standing, WorkArea
from dynamic_tables.lake.slicing import Part, Slicing, Split
from dynamic_tables.model import Intent, Strategy, TableState
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.claims import Heartbeats
from dynamic_tables.refresh.context import Context, SliceNews
from dynamic_tables.refresh.decide import Decision
from dynamic_tables.refresh.parallel import LEAST_WORKERS, slices_for
from dynamic_tables.refresh.refusals import interrupted, taken_over
from dynamic_tables.refresh.subtasks import carry_out, part_of
from dynamic_tables.refresh.writer import TableWriter, Write
from dynamic_tables.steps import SliceStep
from dynamic_tables.store import Claim, Subtask, WantedSubtask

REMEMBERED = 50  # refreshes that an estimate looks back to
PASSING = frozenset({Reason.INTERRUPTED, Reason.STORE_BROKEN})  # a successor goes on where it was


class Sharing:
    """Shares the refreshes of one table, under one claim."""

    def __init__(
        self,
        context: Context,
        claim: Claim,
        writer: TableWriter,
        hearts: Heartbeats,
        stopping: threading.Event,
    ) -> None:
        self._context, self._claim, self._writer = context, claim, writer
        self._lake, self._store, self._settings = context.lake, context.store, context.settings
        self._hearts, self._stopping = hearts, stopping

    @property
    def _definition(self) -> Definition:
        return self._writer.definition

    def is_allowed(self) -> bool:
        on = self._settings["parallel_refresh"] == "on"
        return self._lake.can_slice and on and self._definition.options.allow_parallel_refresh

    def _idle_workers(self) -> int:
        return self._store.idle_workers(self._context.claimant.owner)

    def split(
        self, area: WorkArea, size: int, decision: Decision, intent: Intent | None = None
    ) -> Split | None:
        """How a refresh of so many keys is shared; None: one worker does it alone."""
        count = slices_for(
            size,
            decision,
            self._definition.options,
            self._settings,
            idle_workers=self._idle_workers,
            history=lambda: self._store.history(self._definition.table_id, REMEMBERED),
        )
        if count < 2:  # noqa: PLR2004  one slice is no slice
            return None
        pins = intent.pins if intent else self._writer.order.pins
        return area.slicer(self._definition, 0).split(decision.strategy, count, pins)

    def whole(
        self,
        area: WorkArea,
        state: TableState,
        standing: Standing,
        decision: Decision,
        intent: Intent | None = None,
    ) -> Write | None:
        """The whole query, shared; None: one worker does it alone."""
        if not self.is_allowed() or self._idle_workers() < LEAST_WORKERS:
            return None  # before anything is counted
        pins = intent.pins if intent else self._writer.order.pins
        size = area.slicer(self._definition, 0).size(pins)
        split = self.split(area, size, decision, intent)
        if split is None:
            return None
        return self.share(area, split, state, standing, decision, intent)

    def share(
        self,
        area: WorkArea,
        split: Split,
        state: TableState,
        standing: Standing,
        decision: Decision,
        intent: Intent | None = None,
    ) -> Write:
        """Open the intent, create the slices, wait for them, put them together."""
        intent = intent or self._writer.intend(standing)
        try:
            intent = self._opened(area, split, decision.strategy, intent)
            return self.completed(area, intent, state, standing, decision)
        except (DynamicTablesError, *self._lake.faults) as error:
            if is_left_open(error):
                raise
            # It raises, or finds a predecessor's commit, which the next refresh records.
            self._writer.numbers.give_up(error, self._definition, intent, standing.version)
            raise taken_over(self._definition, f"committed refresh {intent.sequence}") from error

    def _opened(self, area: WorkArea, split: Split, strategy: Strategy, intent: Intent) -> Intent:
        key: tuple[str, ...] = ()
        counts: Mapping[int, int] = {}
        numbers: Iterable[int] = range(split.count)
        if strategy is Strategy.KEYS:
            staged = area.slicer(self._definition, intent.sequence).stage_keys(split)
            split, key, counts = staged.split, staged.key, staged.counts
            numbers = sorted(counts)
            self._writer.step(SliceStep.KEYS_STAGED)
        slicing = Slicing(
            definition=self._definition,
            strategy=strategy,
            key=key,
            split=split,
            slices=tuple(numbers),
            counts=counts,
        )
        wanted = [
            WantedSubtask(
                slice_no=number, subtask_type=split.kind.value, subtask_data=split.data(number)
            )
            for number in slicing.slices
        ]
        self._store.open_slices(self._claim, intent.sequence, slicing.as_json(), wanted)
        self._tell("created", count=len(wanted))
        self._writer.step(SliceStep.SHARED)
        return replace(intent, slicing=slicing.as_json())

    def completed(
        self,
        area: WorkArea,
        intent: Intent,
        state: TableState,
        standing: Standing,
        decision: Decision,
    ) -> Write:
        """Wait for the slices of an open intent, whoever created them, and put them together."""
        assert intent.slicing is not None
        slicing = Slicing.from_json(intent.slicing)
        parts = self._computed(intent, slicing)
        slicer = area.slicer(self._definition, intent.sequence)
        rows = slicer.gather(slicing, parts, intent.pins, intent.cut.instant)
        if slicing.strategy is Strategy.KEYS:
            changes = slicer.difference(rows, slicing, standing.version)
            write = Write(area=area, rows=None, changes=changes)
        else:
            write = self._writer.prepared(area, rows, state, standing, decision)
        self._writer.step(SliceStep.GATHERED)
        return replace(write, intent=intent)

    # Waiting

    def _computed(self, intent: Intent, slicing: Slicing) -> dict[int, Part]:
        """Every slice's rows; this worker computes some of them instead of waiting."""
        waker, begun, waited = self._store.waker(), self._store.now(), 0.0
        try:
            while True:
                found = self._store.look_at_slices(self._claim, intent.sequence)
                self._tell_lost(found)
                self._check_all_there(slicing, found)
                self._check_failed(found)
                parts = {item.slice_no: part_of(item.result) for item in found if item.result}
                if len(parts) == len({item.slice_no for item in found}):
                    return parts
                self._check_time((self._store.now() - begun).total_seconds(), parts, found)
                if self._helped():
                    continue
                before = time.monotonic()
                waker.sleep(self._settings["poll_s"], self._stopping)
                waited += time.monotonic() - before
        finally:
            waker.close()
            self._tell("waited", seconds=waited)

    def _helped(self) -> bool:
        subtask = self._store.claim_subtask(self._context.claimant, self._definition.table_id)
        if subtask is None:
            return False
        with self._hearts.kept(subtask):
            counts = carry_out(self._context, subtask)
        if not counts:
            self._lake.standing(self._definition)  # raises if it is this process that broke down
        return True

    def _check_all_there(self, slicing: Slicing, found: Iterable[Subtask]) -> None:
        """Without its slices a table would lose their rows: nothing may pass for everything."""
        if missing := sorted(set(slicing.slices) - {item.slice_no for item in found}):
            raise RefreshError(
                f"the store has lost slices: {', '.join(map(str, missing))}",
                reason=Reason.SUBTASKS_LOST,
                about=str(self._definition.name),
                hint="rows of refresh_subtasks are not to be deleted; the table is as it was",
            )

    def _check_failed(self, found: Iterable[Subtask]) -> None:
        for item in found:
            if item.status == "failed":
                raise RefreshError(
                    f"slice {item.slice_no}: {item.error}",
                    reason=_lasting(Reason(item.reason or Reason.SUBTASKS_LOST.value)),
                    about=str(self._definition.name),
                    hint="`dynamic-tables history` tells more; the table is as it was",
                )

    def _tell_lost(self, found: Iterable[Subtask]) -> None:
        """Who takes a slice tells that its last worker vanished; nobody takes these any more."""
        for item in found:
            if item.lost:
                assert item.error is not None
                self._context.tell(SliceNews.failed(item, Reason.SUBTASKS_LOST, item.error))

    def _check_time(self, seconds: float, parts: dict[int, Part], found: list[Subtask]) -> None:
        """Before every slice of its own, too: with many of them it might never come to wait."""
        if self._stopping.is_set():
            raise interrupted(self._definition)
        if seconds > self._settings["parallel_timeout_s"]:
            raise RefreshError(
                f"{len(parts)} of {len({item.slice_no for item in found})} slices were computed"
                f" within {self._settings['parallel_timeout_s']:.0f} s",
                reason=Reason.PARALLEL_TIMEOUT,
                about=str(self._definition.name),
                hint="start more workers, or set parallel_timeout_s",
            )

    def _tell(
        self, what: Literal["created", "waited"], *, count: int = 1, seconds: float = 0.0
    ) -> None:
        table = str(self._definition.name)
        self._context.tell(SliceNews(table=table, what=what, count=count, seconds=seconds))


def is_left_open(error: BaseException) -> bool:
    """Whether a successor completes it, with the slices that are finished."""
    if not isinstance(error, DynamicTablesError):
        return False
    return isinstance(error, Held) or error.reason in PASSING


def _lasting(reason: Reason) -> Reason:
    """Why a refresh ends with its slice, which nobody tries again: it must not be left open, nor
    told as if the coordinator's own engine had died."""
    return Reason.SUBTASKS_LOST if reason in PASSING | {Reason.ENGINE_GONE} else reason
