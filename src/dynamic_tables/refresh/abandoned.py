"""What is left open of a table that was suspended meanwhile: its coordinator died, and nobody asks
for it until somebody resumes the table.

Nothing is computed for it any more. If its commit stands, it is recorded; else its number is given
up, and what was staged goes.
"""

from __future__ import annotations

import logging

from dynamic_tables.errors import DynamicTablesError, Held
from dynamic_tables.model import Action, Intent, Status, Strategy, TableState, Work
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.claims import claimed
from dynamic_tables.refresh.context import Context
from dynamic_tables.refresh.decide import Decision
from dynamic_tables.refresh.states import is_fence
from dynamic_tables.refresh.writer import Order, TableWriter
from dynamic_tables.store import Claim

LOG = logging.getLogger(__name__)


class Abandoned:
    """Ends such refreshes, each tried once by this process: a next one may do better."""

    def __init__(self, context: Context) -> None:
        self._context, self._store, self._lake = context, context.store, context.lake
        self._tried: set[tuple[str, int]] = set()

    def end(self) -> None:
        for intent in self._store.left_open(Status.SUSPENDED):
            key = (intent.table_id, intent.sequence)
            state = self._store.table_by_id(intent.table_id)
            if state is None or key in self._tried:
                continue
            self._tried.add(key)
            name = state.definition.name
            try:
                with claimed(self._context, state.definition, intent.refresh_id) as claim:
                    self._end_one(claim)
            except Held:
                self._tried.discard(key)  # somebody is at it
            except (DynamicTablesError, *self._lake.faults) as error:
                LOG.warning("%s: refresh %s stays open: %s", name, intent.sequence, error)

    def _end_one(self, claim: Claim) -> None:
        """As it is now that nobody else can touch it."""
        state, intent = self._store.table_by_id(claim.table_id), self._store.intent(claim.table_id)
        if state is None or intent is None or state.status is not Status.SUSPENDED:
            return
        writer = TableWriter(self._context, _order(state, intent), claim)
        definition, numbers = state.definition, writer.numbers
        standing = self._lake.standing(definition)
        after = state.build.version if state.build else -1
        commit = numbers.landed(definition, intent.sequence, after)
        if commit is None and standing.sequence < intent.sequence:
            label = f"{intent.refresh_id} {definition.name}"
            with self._lake.work_area(definition, label) as area:
                commit = numbers.fence(area, definition, intent, standing.version)
        elif commit is None or is_fence(commit):  # it stands, whatever it held
            numbers.drop(definition, intent)
            return
        if commit is not None:
            self._lake.publish(definition)
            writer.finish(intent, commit, _recovered(state), state.build, Work())


def _order(state: TableState, intent: Intent) -> Order:
    return Order(
        refresh_id=intent.refresh_id,
        definition=state.definition,
        read_revision=state.definition.revision,
        cut=intent.cut,
        pins=intent.pins,
        has_children=False,  # nothing is computed
        trigger="schedule",
    )


def _recovered(state: TableState) -> Decision:
    action = Action.REFRESH if state.build else Action.INITIALIZE
    return Decision(action=action, strategy=Strategy.FULL, reason=Reason.RECOVERED)
