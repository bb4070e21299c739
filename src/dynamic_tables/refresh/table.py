"""The refresh of one table: claim, recover, decide, commit exactly once, record.

In the order of the code below:

1. The claim keeps other live processes away. It is not what makes a commit unique; the number n is
   (see `numbered`).
2. Whatever an earlier refresh left open is finished first: the table itself says whether n stands.
3. The intent (n, cut) is written to the store. From here on n means this cut, whoever completes it.
4. One commit carries n.
5. The store records it and closes the intent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.errors import DynamicTablesError, Held, RefreshError, SetupError
from dynamic_tables.lake.base import Commit, Delta, Moves, Rows, Stamp, Standing, WorkArea
from dynamic_tables.model import (
    Action,
    Build,
    Cut,
    Definition,
    Intent,
    Outcome,
    Pin,
    RefreshRecord,
    Strategy,
    TableState,
    Work,
)
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.context import Context, Stopwatch
from dynamic_tables.refresh.decide import Decision, Facts, check_mode, decide
from dynamic_tables.refresh.facts import gather
from dynamic_tables.refresh.numbered import NumberedCommits
from dynamic_tables.refresh.states import FENCE, behind_note, build_of, newest_build, with_metrics
from dynamic_tables.steps import Step, reached
from dynamic_tables.store import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one table is asked to become."""

    refresh_id: str
    definition: Definition
    cut: Cut
    pins: tuple[Pin, ...]
    has_children: bool
    forced: Strategy | None = None
    trigger: str = "manual"


class TableRefresh:
    """One table on its way to one cut."""

    def __init__(self, context: Context, order: Order, claim: Claim) -> None:
        self._context = context
        self._store, self._lake = context.store, context.lake
        self._order = order
        self._definition = order.definition
        self._claim = claim
        self._watch = Stopwatch()
        self._numbers = NumberedCommits(context, claim, self._step)
        self.build: Build | None = None  # the state that stands after the run
        self._started_at = context.clock()

    def run(self) -> RefreshRecord:
        """Bring the table to the cut; every outcome but an error comes back as a record."""
        state = self._recover()
        self._check_still_wanted(state)
        standing = self._lake.standing(self._definition)
        facts = gather(
            self._lake,
            self._definition,
            build=state.build,
            standing=standing,
            cut=self._order.cut,
            pins=self._order.pins,
            forced=self._order.forced,
        )
        decision = decide(facts)
        self._step(Step.PINNED)
        if decision.strategy is Strategy.NO_DATA:
            assert state.build is not None
            return self._no_data(state.build, decision, standing)
        return self._write(state, standing, decision, facts)

    def _check_still_wanted(self, state: TableState) -> None:
        """Between plan and claim, another process may have changed or refreshed the table."""
        planned, present = self._order.definition, self._definition
        changed = planned.built_from != present.built_from or planned.sources != present.sources
        reached_cut = state.build.cut.versions if state.build else {}
        passed = any(
            version > self._order.cut.versions.get(key, version)
            for key, version in reached_cut.items()
        )
        if changed or passed:
            what = "changed its definition" if changed else "refreshed it to a newer cut"
            raise Held(
                f"another process {what} meanwhile; this one wrote nothing",
                reason=Reason.TAKEN_OVER,
                about=str(present.name),
                hint="refresh again, if there is still something to do",
            )

    # Doing

    def _no_data(self, build: Build, decision: Decision, standing: Standing) -> RefreshRecord:
        """The rows stand for the new cut too: one store transaction, no commit."""
        self._lake.publish(self._definition)  # another process may have loaded it
        moved = replace(
            build,
            cut=self._order.cut,
            pins=self._order.pins,
            version=standing.version,
            fingerprint=self._definition.built_from,
        )
        record = self._record(
            decision, build=moved, cut_from=build.cut, work=Work(rows_inserted=0, rows_deleted=0)
        )
        self._keep(record, moved, close_intent=None)
        return record

    def _write(
        self, state: TableState, standing: Standing, decision: Decision, facts: Facts
    ) -> RefreshRecord:
        label = f"{self._order.refresh_id} {self._definition.name}"
        with self._lake.work_area(self._definition, label) as area:
            if decision.strategy is Strategy.FULL:
                decision, write = self._recomputed(area, state, standing, decision)
            else:
                decision, write = self._changed(area, state, standing, decision, facts)
            self._step(Step.COMPUTED)
            if write.changes == 0:
                assert state.build is not None
                settled = replace(decision, strategy=Strategy.NO_DATA, reason=Reason.NET_EMPTY)
                return self._no_data(state.build, settled, standing)
            intent = self._intend(standing)
            return self._commit(intent, state, standing, decision, write)

    def _recomputed(
        self, area: WorkArea, state: TableState, standing: Standing, decision: Decision
    ) -> tuple[Decision, _Write]:
        """The whole query at the cut."""
        rows = area.compute(self._definition, self._order.pins, self._order.cut.instant)
        decision = self._with_schema(rows, decision)
        return decision, self._prepared(area, rows, state, standing)

    def _changed(
        self,
        area: WorkArea,
        state: TableState,
        standing: Standing,
        decision: Decision,
        facts: Facts,
    ) -> tuple[Decision, _Write]:
        """Only what the sources' changes make of the table; recompute where they cannot be had."""
        assert state.build is not None
        plan = facts.plan()
        assert isinstance(plan, DeltaPlan)
        moves = Moves(
            before=state.build.pins,
            after=self._order.pins,
            then=state.build.cut.instant,
            now=self._order.cut.instant,
            moved=facts.moved,
            clock_moved=facts.clock_moved,
        )
        found = self._delta(area, plan, decision.strategy, moves, standing)
        if isinstance(found, Reason):
            check_mode(self._definition, found)
            full = replace(decision, strategy=Strategy.FULL, reason=found)
            return self._recomputed(area, state, standing, full)
        decision = replace(decision, strategy=found.strategy)
        return decision, _Write(area=area, rows=None, changes=found.changes)

    def _delta(
        self,
        area: WorkArea,
        plan: DeltaPlan,
        strategy: Strategy,
        moves: Moves,
        standing: Standing,
    ) -> Delta | Reason:
        """A row that came and went between two refreshes is in no state, but in the changes: an
        expression may fail on it. The query itself decides then."""
        try:
            return area.delta(self._definition, plan, strategy, moves, standing.version)
        except self._lake.faults as error:
            told = self._lake.told(error, about=str(self._definition.name))
            if told.reason is Reason.HISTORY_GONE:
                return told.reason
            if told.reason is not Reason.QUERY_FAILED:
                raise
            return Reason.CHANGES_FAILED

    def _prepared(
        self, area: WorkArea, rows: Rows, state: TableState, standing: Standing
    ) -> _Write:
        """Children should see real changes only, so a table that has some is compared first.

        A first load and a new schema have to be written whole.
        """
        same_schema = rows.columns == standing.columns
        if state.build is None or not self._order.has_children or not same_schema:
            return _Write(area=area, rows=rows, changes=None)
        size = area.difference_size(rows, self._definition, standing.version)
        return _Write(area=area, rows=rows, changes=size)

    def _with_schema(self, rows: Rows, decision: Decision) -> Decision:
        """Other types than declared: the stored table is built anew with them."""
        if rows.columns == self._definition.stored_columns:
            return decision
        declared = len(self._definition.columns)
        auxiliary = self._definition.auxiliary
        self._redefine(
            columns=rows.columns[:declared],
            auxiliary=auxiliary and replace(auxiliary, columns=rows.columns[declared:]),
        )
        if decision.action is not Action.REFRESH:
            return decision
        return replace(decision, action=Action.REINITIALIZE, reason=Reason.SOURCE_SCHEMA_CHANGED)

    def _intend(self, standing: Standing) -> Intent:
        intent = self._store.open_intent(
            self._claim,
            Intent(
                table_id=self._definition.table_id,
                sequence=standing.sequence + 1,
                refresh_id=self._order.refresh_id,
                cut=self._order.cut,
                pins=self._order.pins,
                fingerprint=self._definition.built_from,
            ),
        )
        self._step(Step.INTENDED)
        return intent

    def _commit(
        self,
        intent: Intent,
        state: TableState,
        standing: Standing,
        decision: Decision,
        write: _Write,
    ) -> RefreshRecord:
        commit = self._numbers.commit(
            self._definition,
            intent,
            lambda stamp: write.perform(self._definition, stamp),
            strategy=decision.strategy.value,
            base=standing.version,
        )
        self._lake.publish(self._definition)
        self._step(Step.REGISTERED)
        return self._finish(intent, commit, decision, state.build, write.area.work())

    def _finish(
        self,
        intent: Intent,
        commit: Commit,
        decision: Decision,
        before: Build | None,
        work: Work,
    ) -> RefreshRecord:
        build = build_of(commit)
        record = self._record(
            decision,
            build=build,
            cut_from=before.cut if before else None,
            work=with_metrics(work, commit.metrics),
            refresh_id=intent.refresh_id,
        )
        self._keep(record, build, close_intent=intent.sequence)
        return record

    def _redefine(self, **changes: Any) -> None:
        self._definition = replace(
            self._definition, **changes, revision=self._definition.revision + 1
        )
        self._lake.save_definition(self._definition)
        self._store.update_definition(self._definition)

    # Recovering

    def _recover(self) -> TableState:
        """Settle what an earlier refresh left; the table's state as it is then."""
        state = self._state()
        if state.build is None and not self._lake.is_laid_out(self._definition):
            self._lake.lay_out(self._definition)  # CREATE died between store and lake
        standing = self._lake.standing(self._definition)
        self._settle_definition(state, standing)
        intent = self._store.intent(self._definition.table_id)
        if intent is not None:
            self._settle(intent, state, standing)
        elif standing.sequence > (state.build.sequence if state.build else 0):
            self._adopt_newest(state)
        elif state.build is not None and standing.sequence < state.build.sequence:
            raise SetupError(
                f"the stored table is at refresh {standing.sequence}, the store says"
                f" {state.build.sequence}",
                reason=Reason.LAKE_CHANGED,
                about=str(self._definition.name),
                hint="it was restored or its transaction numbers were removed;"
                " CREATE OR REPLACE DYNAMIC TABLE builds it anew",
            )
        else:
            return state
        return self._state()

    def _settle_definition(self, state: TableState, standing: Standing) -> None:
        """The largest revision counts, wherever it is found; store and lake are brought to it."""
        kept, stored = state.definition, standing.definition
        self._definition = max(self._order.definition, kept, stored, key=lambda d: d.revision)
        if self._definition.revision > stored.revision:
            self._lake.save_definition(self._definition)
        if self._definition.revision > kept.revision:
            self._store.update_definition(self._definition)

    def _state(self) -> TableState:
        state = self._store.table_by_id(self._definition.table_id)
        if state is None:
            raise RefreshError(
                "the table was dropped meanwhile",
                reason=Reason.UNKNOWN_TABLE,
                about=str(self._definition.name),
            )
        return state

    def _settle(self, intent: Intent, state: TableState, standing: Standing) -> None:
        """Finish an open intent: record it if it stands, else complete the same cut under the same
        n."""
        recovered = Decision(
            action=Action.REFRESH if state.build else Action.INITIALIZE,
            strategy=Strategy.FULL,
            reason=Reason.RECOVERED,
        )
        after = state.build.version if state.build else -1
        commit = self._numbers.landed(self._definition, intent.sequence, after)
        if commit is None and standing.sequence >= intent.sequence:
            # The commit stands but the log no longer tells what it held: recompute.
            self._store.drop_intent(self._claim, intent.sequence)
            self._order = replace(self._order, forced=Strategy.FULL)
        elif commit is None:
            self._complete(intent, state, standing, recovered)
        elif commit.stamp is not None and commit.stamp.strategy == FENCE:
            self._store.drop_intent(self._claim, intent.sequence)
        else:
            self._lake.publish(self._definition)
            self._finish(intent, commit, recovered, state.build, Work())

    def _complete(
        self, intent: Intent, state: TableState, standing: Standing, decision: Decision
    ) -> None:
        """The intent's own cut; a definition that changed since cannot be computed for it any
        more."""
        label = f"{intent.refresh_id} {self._definition.name}"
        with self._lake.work_area(self._definition, label) as area:
            if intent.fingerprint != self._definition.built_from:
                self._numbers.fence(area, self._definition, intent, standing.version)
                return
            try:
                rows = area.compute(self._definition, intent.pins, intent.cut.instant)
                write = self._prepared(area, rows, state, standing)
            except (*self._lake.faults, DynamicTablesError):
                # The cut can no longer be computed: a source is gone or changed. Give n up.
                self._numbers.fence(area, self._definition, intent, standing.version)
                return
            self._commit(intent, state, standing, decision, write)

    def _adopt_newest(self, state: TableState) -> None:
        """The lake is ahead of the store (which was lost or set back): believe the lake."""
        build = newest_build(self._lake, self._definition)
        known = state.build.sequence if state.build else 0
        if build is not None and build.sequence > known:
            self._lake.publish(self._definition)
            self._store.adopt_build(build, claim=self._claim)

    # Telling

    def _record(
        self,
        decision: Decision,
        *,
        build: Build,
        cut_from: Cut | None,
        work: Work,
        refresh_id: str | None = None,
    ) -> RefreshRecord:
        return RefreshRecord(
            refresh_id=refresh_id or self._order.refresh_id,
            table=self._definition.name,
            table_id=self._definition.table_id,
            action=decision.action,
            outcome=Outcome.DONE,
            reason=decision.reason,
            strategy=decision.strategy,
            sequence=build.sequence,
            version=build.version,
            cut_from=cut_from,
            cut=build.cut,
            pins=build.pins,
            work=work,
            started_at=self._started_at,
            duration_ms=self._watch.total_ms,
            steps_ms=dict(self._watch.laps),
            trigger=self._order.trigger,
            note=behind_note(build.pins),
        )

    def _keep(self, record: RefreshRecord, build: Build, *, close_intent: int | None) -> None:
        self._store.record(self._claim, record, build, close_intent=close_intent, failures="reset")
        self.build = build
        self._step(Step.RECORDED)

    def _step(self, step: Step) -> None:
        self._watch.lap(step.value)
        reached(step, str(self._definition.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """How the rows of one refresh reach the table."""

    area: WorkArea
    rows: Rows | None  # None: only the changes are known
    changes: int | None  # rows of the difference; None: everything is written

    def perform(self, definition: Definition, stamp: Stamp) -> None:
        if self.changes == 0:
            self.area.fence(definition, stamp)  # an empty commit takes the number to the cut
        elif self.changes:
            self.area.apply_difference(definition, stamp)
        else:
            assert self.rows is not None
            self.area.overwrite(self.rows, definition, stamp)
