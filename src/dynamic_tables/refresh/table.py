"""The refresh of one table: recover, decide, compute, write.

The claim keeps other live processes away. It is not what makes a commit unique; the number n is
(see `numbered`). Whatever an earlier refresh left open is finished first (see `recovery`); how a
commit and its record are written is in `writer`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.definition import Definition
from dynamic_tables.errors import RefreshError
from dynamic_tables.lake.base import Delta, Moves, Rows, Standing, WorkArea
from dynamic_tables.lake.slicing import Affected, Split
from dynamic_tables.model import (
    Action,
    Build,
    RefreshRecord,
    Strategy,
    TableState,
    Work,
)
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.auxiliary import in_parts
from dynamic_tables.refresh.claims import Heartbeats
from dynamic_tables.refresh.context import Context
from dynamic_tables.refresh.decide import Decision, Facts, by_rows, decide, fallen_back
from dynamic_tables.refresh.facts import gather
from dynamic_tables.refresh.recovery import Recovery
from dynamic_tables.refresh.refusals import taken_over
from dynamic_tables.refresh.sharing import Sharing
from dynamic_tables.refresh.writer import Order, TableWriter, Write
from dynamic_tables.steps import Step
from dynamic_tables.store import Claim

REMEMBERED = 50  # refreshes that a decision looks back to


class TableRefresh:
    """One table on its way to one cut."""

    def __init__(
        self,
        context: Context,
        order: Order,
        claim: Claim,
        hearts: Heartbeats,
        stopping: threading.Event,
    ) -> None:
        self._lake, self._store = context.lake, context.store
        self._writer = TableWriter(context, order, claim)
        self._sharing = Sharing(context, claim, self._writer, hearts, stopping)
        self._recovery = Recovery(context, claim, self._writer, self._sharing)

    @property
    def build(self) -> Build | None:
        """The state that stands after the run."""
        return self._writer.build

    @property
    def _definition(self) -> Definition:
        return self._writer.definition

    @property
    def _order(self) -> Order:
        return self._writer.order

    def run(self) -> RefreshRecord:
        """Bring the table to the cut; every outcome but an error comes back as a record."""
        state = self._recovery.run()
        if self._order.only_recover and self._writer.recovered is not None:
            return self._writer.recovered
        self._check_still_wanted(state)
        standing = self._lake.standing(self._definition)
        # What stands is over: a worker that was paused too long may have staged something for it.
        self._writer.numbers.clear(self._definition, standing.sequence)
        facts = gather(
            self._lake,
            self._definition,
            build=state.build,
            standing=standing,
            cut=self._order.cut,
            pins=self._order.pins,
            history=lambda: self._store.history(self._definition.table_id, REMEMBERED),
            forced=self._order.forced,
        )
        decision = decide(facts)
        self._writer.step(Step.PINNED)
        if decision.strategy is Strategy.NO_DATA:
            assert state.build is not None
            return self._no_data(state.build, decision, standing, self._lake.no_work)
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
            raise taken_over(present, what)

    # Doing

    def _no_data(
        self, build: Build, decision: Decision, standing: Standing, work: Work
    ) -> RefreshRecord:
        """The rows stand for the new cut too: one store transaction, no commit."""
        self._lake.publish(self._definition)  # another process may have loaded it
        moved = replace(
            build,
            cut=self._order.cut,
            pins=self._order.pins,
            version=standing.version,
            fingerprint=self._definition.built_from,
        )
        work = replace(work, rows_inserted=0, rows_deleted=0)
        record = self._writer.record(decision, build=moved, cut_from=build.cut, work=work)
        self._writer.keep(record, moved, close_intent=None)
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
            self._writer.step(Step.COMPUTED)
            if write.changes == 0 and write.intent is None:
                assert state.build is not None
                settled = decision.instead(Strategy.NO_DATA, Reason.NET_EMPTY)
                settled = replace(settled, reason=Reason.NET_EMPTY)
                return self._no_data(state.build, settled, standing, area.work())
            intent = write.intent or self._writer.intend(standing)
            record = self._writer.commit(intent, state, standing, decision, write)
        if record is None:
            raise taken_over(self._definition, f"gave refresh {intent.sequence} up")
        return record

    def _recomputed(
        self, area: WorkArea, state: TableState, standing: Standing, decision: Decision
    ) -> tuple[Decision, Write]:
        """The whole query at the cut."""
        rows = area.compute(self._definition, self._order.pins, self._order.cut.instant)
        decision = self._with_schema(rows, decision)
        shared = self._sharing.whole(area, state, standing, decision)
        return decision, shared or self._writer.prepared(area, rows, state, standing, decision)

    def _changed(
        self,
        area: WorkArea,
        state: TableState,
        standing: Standing,
        decision: Decision,
        facts: Facts,
    ) -> tuple[Decision, Write]:
        """Only what the sources' changes make of the table; recompute where they cannot be had."""
        plan = facts.plan()
        assert isinstance(plan, DeltaPlan)
        assert facts.moves is not None
        split: list[Split] = []

        def too_many(keys: int) -> bool:
            found = self._sharing.split(area, keys, decision)
            split.extend([found] if found else [])
            return found is not None

        shares = too_many if self._sharing.is_allowed() else None
        found = self._delta(area, plan, decision.strategy, facts.moves, standing, shares)
        if found is Reason.ROWS_WENT:  # their logs did not tell
            decision = by_rows(self._definition, decision)
            found = self._delta(area, plan, decision.strategy, facts.moves, standing, shares)
        if isinstance(found, Affected):
            return decision, self._sharing.share(area, split[0], state, standing, decision)
        if isinstance(found, Reason):
            full = fallen_back(self._definition, decision, found)
            return self._recomputed(area, state, standing, full)
        return decision, Write(area=area, rows=None, changes=found.changes)

    def _delta(
        self,
        area: WorkArea,
        plan: DeltaPlan,
        strategy: Strategy,
        moves: Moves,
        standing: Standing,
        too_many: Callable[[int], bool] | None,
    ) -> Delta | Affected | Reason:
        """A row that came and went between two refreshes is in no state, but in the changes: an
        expression may fail on it. The query itself decides then. What failed for its surroundings
        is tried again later: a recomputation would read even more."""
        try:
            return area.delta(self._definition, plan, strategy, moves, standing.version, too_many)
        except RefreshError as error:
            if error.reason is not Reason.HISTORY_GONE:
                raise
            return error.reason
        except self._lake.faults as error:
            told = self._lake.told(error, about=str(self._definition.name))
            if told.reason is Reason.HISTORY_GONE:
                return told.reason
            if told.reason is not Reason.QUERY_FAILED:
                raise
            return Reason.CHANGES_FAILED

    def _with_schema(self, rows: Rows, decision: Decision) -> Decision:
        """Other types than declared: the stored table is built anew with them."""
        if rows.columns == self._definition.stored_columns:
            return decision
        declared = len(self._definition.columns)
        auxiliary = self._definition.auxiliary
        retyped = replace(
            self._definition,
            columns=rows.columns[:declared],
            auxiliary=auxiliary and replace(auxiliary, columns=rows.columns[declared:]),
        )
        if retyped.in_parts is not None:
            retyped = in_parts(self._lake, retyped)
        self._writer.redefine(columns=retyped.columns, auxiliary=retyped.auxiliary)
        if decision.action is not Action.REFRESH:
            return decision
        return replace(decision, action=Action.REINITIALIZE, reason=Reason.SOURCE_SCHEMA_CHANGED)
