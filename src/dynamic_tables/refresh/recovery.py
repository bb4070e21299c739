"""What an earlier refresh of a table left open is finished first: the table itself says whether n
stands."""

from __future__ import annotations

from dataclasses import replace

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError, RefreshError, SetupError
from dynamic_tables.lake.base import Commit, Standing, WorkArea
from dynamic_tables.model import Action, Intent, Strategy, TableState, Work
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh import costs
from dynamic_tables.refresh.context import Context
from dynamic_tables.refresh.decide import Decision, check
from dynamic_tables.refresh.definitions import with_hidden
from dynamic_tables.refresh.facts import changed_by_others
from dynamic_tables.refresh.sharing import Sharing, is_left_open
from dynamic_tables.refresh.states import is_fence, newest_build
from dynamic_tables.refresh.writer import TableWriter, Write
from dynamic_tables.store import Claim


class Recovery:
    """Brings the store, the lake and the definition of one table in line."""

    def __init__(
        self, context: Context, claim: Claim, writer: TableWriter, sharing: Sharing
    ) -> None:
        self._store, self._lake = context.store, context.lake
        self._claim = claim
        self._writer, self._sharing = writer, sharing

    @property
    def _definition(self) -> Definition:
        return self._writer.definition

    def run(self) -> TableState:
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

    def _with_parents(self, definition: Definition) -> Definition:
        """A parent that was retyped a moment ago folds its parts otherwise than when this was
        planned."""
        states = {key: self._store.table_by_id(key) for key in definition.parents}
        hidden = {key: state.definition.hidden for key, state in states.items() if state}
        return with_hidden(definition, hidden)

    def _settle_definition(self, state: TableState, standing: Standing) -> None:
        """The largest revision counts, wherever it is found; store and lake are brought to it, the
        store first: it refuses who has lost the claim. What the plan made of the definition counts
        if nobody changed that between plan and claim."""
        kept, stored, order = state.definition, standing.definition, self._writer.order
        newest = max(kept, stored, key=lambda d: d.revision)
        if newest.revision == order.read_revision:
            newest = order.definition
        newest = self._with_parents(newest)
        self._writer.definition = newest
        if newest.revision > kept.revision:
            self._store.update_definition(self._claim, newest)
        if newest.revision > stored.revision:
            self._lake.save_definition(newest)

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
        commit = self._writer.numbers.landed(self._definition, intent.sequence, after)
        if commit is None and standing.sequence >= intent.sequence:
            # The commit stands but the log no longer tells what it held: recompute.
            if self._writer.order.forced is not Strategy.FULL:
                self._check_allowed(state, replace(recovered, reason=Reason.HISTORY_GONE))
            self._writer.numbers.drop(self._definition, intent)
            self._writer.order = replace(self._writer.order, forced=Strategy.FULL)
        elif commit is None:
            self._complete(intent, state, standing, recovered)
        elif is_fence(commit):
            self._writer.numbers.drop(self._definition, intent)
        else:
            self._record(intent, commit, state, recovered)

    def _record(
        self, intent: Intent, commit: Commit, state: TableState, decision: Decision
    ) -> None:
        """What a predecessor committed."""
        self._lake.publish(self._definition)
        self._writer.finish(intent, commit, decision, state.build, Work())

    def _give_up(
        self,
        area: WorkArea,
        intent: Intent,
        state: TableState,
        standing: Standing,
        decision: Decision,
    ) -> None:
        """Take n away; if a predecessor came first with its rows, they stand."""
        late = self._writer.numbers.fence(area, self._definition, intent, standing.version)
        if late is not None:
            self._record(intent, late, state, decision)

    def _complete(
        self, intent: Intent, state: TableState, standing: Standing, decision: Decision
    ) -> None:
        """The intent's own cut; a definition that changed since cannot be computed for it any
        more."""
        label = f"{intent.refresh_id} {self._definition.name}"
        with self._lake.work_area(self._definition, label) as area:
            if intent.fingerprint != self._definition.built_from:
                self._give_up(area, intent, state, standing, decision)
                return
            try:
                how, write = self._computed(area, intent, state, standing, decision)
            except (*self._lake.faults, DynamicTablesError) as error:
                if is_left_open(error):
                    raise
                # The cut cannot be computed: a source is gone, or it must not be. Give n up.
                self._give_up(area, intent, state, standing, decision)
                if self._writer.order.only_recover and self._is_querys(error):
                    raise  # what nobody asked for is not tried again on the same data
                return
            self._writer.commit(write.intent or intent, state, standing, how, write)

    def _is_querys(self, error: BaseException) -> bool:
        told = error if isinstance(error, DynamicTablesError) else self._told(error)
        return told.reason is Reason.QUERY_FAILED and self._writer.recovered is None

    def _told(self, error: BaseException) -> RefreshError:
        return self._lake.told(error, about=str(self._definition.name))

    def _computed(
        self,
        area: WorkArea,
        intent: Intent,
        state: TableState,
        standing: Standing,
        decision: Decision,
    ) -> tuple[Decision, Write]:
        """The rows of the intent's cut: of finished slices and of those that are left, or anew."""
        if intent.slicing is not None:
            strategy = Strategy(intent.slicing["strategy"])
            decision = replace(decision, strategy=strategy)
            if strategy is Strategy.KEYS:
                self._check_untouched(state, standing)
            return decision, self._sharing.completed(area, intent, state, standing, decision)
        self._check_allowed(state, decision)
        shared = self._sharing.whole(area, state, standing, decision, intent)
        if shared is not None:
            return decision, shared
        rows = area.compute(self._definition, intent.pins, intent.cut.instant)
        return decision, self._writer.prepared(area, rows, state, standing, decision)

    def _check_untouched(self, state: TableState, standing: Standing) -> None:
        """Slices of keys replace those keys only. Where others wrote since the build, all rows are
        to be looked at: n is given up, and the refresh that follows finds what they did."""
        build = state.build
        if build and changed_by_others(
            self._lake, self._definition, build.version, standing.version
        ):
            raise RefreshError(
                "somebody else changed its rows",
                reason=Reason.FOREIGN_CHANGE,
                about=str(self._definition.name),
            )

    def _check_allowed(self, state: TableState, decision: Decision) -> None:
        """A mode or a limit may rule out to compute the cut anew: then n is given up, and the
        refresh goes on by changes from the state that stands."""
        if state.build is None:
            return
        limited = self._definition.options.max_scan_bytes is not None
        sizes = self._lake.sizes(self._definition, None) if limited else None
        weighed = () if sizes is None else (costs.whole(sizes, ()),)
        check(self._definition, replace(decision, estimates=weighed))

    def _adopt_newest(self, state: TableState) -> None:
        """The lake is ahead of the store (which was lost or set back): believe the lake."""
        build = newest_build(self._lake, self._definition)
        known = state.build.sequence if state.build else 0
        if build is not None and build.sequence > known:
            self._lake.publish(self._definition)
            self._store.adopt_build(build, claim=self._claim)
