"""What a refresh of one table writes, in the lake and in the store, exactly once.

Whoever brings a table to a cut, a refresh or the recovery of one that died, does it in this order:

1. The intent (n, cut) is written to the store. From here on n means this cut, whoever completes it.
2. One commit carries n (see `numbered`).
3. The store records it and closes the intent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.lake.base import Commit, Layout, Rows, Stamp, Standing, WorkArea
from dynamic_tables.model import (
    Build,
    Cut,
    Intent,
    Outcome,
    Pin,
    RefreshRecord,
    Strategy,
    TableState,
    Work,
)
from dynamic_tables.options import Deduplication
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.context import Context, Stopwatch
from dynamic_tables.refresh.decide import Decision
from dynamic_tables.refresh.numbered import NumberedCommits
from dynamic_tables.refresh.states import behind_note, build_of, with_metrics
from dynamic_tables.steps import SliceStep, Step, reached
from dynamic_tables.store import Claim

FEW_PARTIAL_ROWS = 100_000  # are folded by readers in no time


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one table is asked to become."""

    refresh_id: str
    definition: Definition  # with its views and parents as the plan found them
    read_revision: int  # that the plan found in the store, and followed to this definition
    cut: Cut
    pins: tuple[Pin, ...]
    has_children: bool
    forced: Strategy | None = None
    trigger: str = "manual"
    behind_since: datetime | None = None  # the first change that the table has not read
    only_recover: bool = False  # nobody asked for more than what an earlier one left open


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """How the rows of one refresh reach the table."""

    area: WorkArea
    rows: Rows | None  # None: only the changes are known
    changes: int | None  # rows of the difference, at most; None: everything is written
    intent: Intent | None = None  # open already, because several workers computed the rows

    def perform(self, definition: Definition, stamp: Stamp) -> None:
        if self.changes == 0:
            self.area.fence(definition, stamp)  # an empty commit takes the number to the cut
        elif self.changes:
            self.area.apply_difference(definition, stamp)
        else:
            assert self.rows is not None
            self.area.overwrite(self.rows, definition, stamp)


class TableWriter:
    """Writes one table, under one claim."""

    def __init__(self, context: Context, order: Order, claim: Claim) -> None:
        self._store, self._lake = context.store, context.lake
        self._settings, self._tell_completed = context.settings, context.completed
        self._claim = claim
        self._watch = Stopwatch()
        self._started_at = context.instant()
        self.order = order
        self.definition = order.definition  # the newest revision, once it is known
        self.numbers = NumberedCommits(context, claim, self.step)
        self.build: Build | None = None  # the state that was recorded last
        self.recovered: RefreshRecord | None = None  # what an earlier refresh had left open

    def prepared(
        self,
        area: WorkArea,
        rows: Rows,
        state: TableState,
        standing: Standing,
        decision: Decision,
    ) -> Write:
        """Children should see real changes only, so a table that has some is compared first.

        A first load and a new schema have to be written whole.
        """
        same_schema = rows.columns == standing.columns
        redefined = (
            state.build is not None and state.build.fingerprint != self.definition.built_from
        )
        anew = redefined or decision.reason is Reason.FORCED  # parts of another query; or folded
        if self.definition.in_parts is not None and anew:
            return Write(area=area, rows=rows, changes=None)
        if state.build is None or not same_schema or not self._deduplicates(decision):
            return Write(area=area, rows=rows, changes=None)
        size = area.difference_size(rows, self.definition, standing.version)
        return Write(area=area, rows=rows, changes=size)

    def _deduplicates(self, decision: Decision) -> bool:
        """Whether rows that did not change are left alone where all were computed anew."""
        match self.definition.options.deduplication:
            case Deduplication.AUTO:
                return self.order.has_children or decision.reason is Reason.HISTORY_GONE
            case chosen:
                return chosen is Deduplication.TRUE

    def intend(self, standing: Standing) -> Intent:
        intent = self._store.open_intent(
            self._claim,
            Intent(
                table_id=self.definition.table_id,
                sequence=standing.sequence + 1,
                refresh_id=self.order.refresh_id,
                cut=self.order.cut,
                pins=self.order.pins,
                fingerprint=self.definition.built_from,
            ),
        )
        self.step(Step.INTENDED)
        return intent

    def commit(
        self,
        intent: Intent,
        state: TableState,
        standing: Standing,
        decision: Decision,
        write: Write,
    ) -> RefreshRecord | None:
        """Commit and record; None if a predecessor gave the intent up, which is then no more."""
        commit = self.numbers.commit(
            self.definition,
            intent,
            lambda stamp: write.perform(self.definition, stamp),
            strategy=decision.strategy.value,
            base=standing.version,
        )
        if commit is None:
            return None
        self._lake.publish(self.definition)
        self.step(Step.REGISTERED)
        work = write.area.work() if self.numbers.is_own(commit) else Work()
        return self.finish(intent, commit, decision, state.build, work, note=self._compacted())

    def _compacted(self) -> str | None:
        """Merge what is stored in too many pieces, so that readers stay fast; no row changes."""
        pieces: str | None = "pieces"
        try:
            layout = self._lake.layout(self.definition)
            pieces = self._too_many_pieces(layout)
            if pieces is None:
                return None
            self._lake.optimize(self.definition, files_only=not self._is_out_of_order(layout))
        except DynamicTablesError as error:  # the rows stand: they are as right as before
            return f"its {pieces} could not be compacted: {error.message}"
        except self._lake.faults as error:
            told = self._lake.told(error, about=str(self.definition.name))
            return f"its {pieces} could not be compacted: {told.message}"
        return f"{pieces} were compacted"

    def _too_many_pieces(self, layout: Layout) -> str | None:
        files, percent = self._settings["compact_files"], self._settings["compact_percent"]
        if files and layout.small_files >= files:
            return f"{layout.small_files} files"
        allowed = max(layout.rows * percent / 100, FEW_PARTIAL_ROWS)
        if percent and layout.partial_rows > allowed:
            return f"{layout.partial_rows} partial rows"
        if self._is_out_of_order(layout):
            return f"files out of order, {layout.unordered_percent} % of the bytes,"
        return None

    def _is_out_of_order(self, layout: Layout) -> bool:
        percent = self._settings["compact_percent"]
        return bool(percent) and layout.unordered_percent > percent

    def finish(
        self,
        intent: Intent,
        commit: Commit,
        decision: Decision,
        before: Build | None,
        work: Work,
        *,
        note: str | None = None,
    ) -> RefreshRecord:
        """Record a commit, whoever made it, as it is."""
        build, decision = build_of(commit), _as_committed(decision, commit)
        slices = self._cleared(intent)
        record = self.record(
            decision,
            build=build,
            cut_from=before.cut if before else None,
            work=with_metrics(work, commit.metrics),
            refresh_id=intent.refresh_id,
            note=note,
        )
        record = replace(record, slices=slices)
        self.keep(record, build, close_intent=intent.sequence)
        if decision.reason is Reason.RECOVERED:
            self.recovered = record
            if not self.order.only_recover:  # then the record of the refresh after it is returned
                self._tell_completed(record)
        return record

    def _cleared(self, intent: Intent) -> int | None:
        """Take away what was staged for a shared refresh; the number of its slices.

        While the intent is open a successor finds it too.
        """
        if intent.slicing is None:
            return None
        self.numbers.clear(self.definition, intent.sequence)
        self.step(SliceStep.CLEARED)
        return len(intent.slicing["slices"])

    def redefine(self, **changes: Any) -> None:
        self.definition = replace(self.definition, **changes, revision=self.definition.revision + 1)
        self._store.update_definition(self._claim, self.definition)
        self._lake.save_definition(self.definition)

    def record(
        self,
        decision: Decision,
        *,
        build: Build,
        cut_from: Cut | None,
        work: Work,
        refresh_id: str | None = None,
        note: str | None = None,
    ) -> RefreshRecord:
        notes = (behind_note(build.pins), note, self.numbers.left_over)
        return RefreshRecord(
            refresh_id=refresh_id or self.order.refresh_id,
            table=self.definition.name,
            table_id=self.definition.table_id,
            action=decision.action,
            outcome=Outcome.DONE,
            reason=decision.reason,
            strategy=decision.strategy,
            sequence=build.sequence,
            version=build.version,
            cut_from=cut_from,
            cut=build.cut,
            pins=build.pins,
            work=_with_ratio(work, decision),
            estimates=decision.estimates,
            rejected=decision.rejected,
            started_at=self._started_at,
            duration_ms=self._watch.total_ms,
            steps_ms=dict(self._watch.laps),
            trigger=self.order.trigger,
            note="; ".join(filter(None, notes)) or None,
            behind_ms=self._behind_ms(),
        )

    def _behind_ms(self) -> int | None:
        """How far behind the table was when this refresh ended it."""
        if self.order.behind_since is None:
            return None
        before = (self._started_at - self.order.behind_since).total_seconds()
        return max(round(before * 1000), 0) + self._watch.total_ms

    def keep(self, record: RefreshRecord, build: Build, *, close_intent: int | None) -> None:
        self._store.record(self._claim, record, build, close_intent=close_intent, failures="reset")
        self.build = build
        self.step(Step.RECORDED)

    def step(self, step: Step | SliceStep) -> None:
        self._watch.lap(step.value)
        reached(step, str(self.definition.name))


def _as_committed(decision: Decision, commit: Commit) -> Decision:
    """A predecessor may have come to its rows in another way than its successor would have."""
    assert commit.stamp is not None
    return replace(decision, strategy=Strategy(commit.stamp.strategy))


def _with_ratio(work: Work, decision: Decision) -> Work:
    """Where no keys were counted, what the logs tell: people compare strategies by this share."""
    if work.cardinality_ratio is not None or decision.strategy is Strategy.NO_DATA:
        return work
    return replace(work, cardinality_ratio=decision.changed)
