"""What is to be refreshed, queued up: the part of the worker that has been there longest."""

from __future__ import annotations

from collections.abc import Iterable

from dynamic_tables.graph import Graph
from dynamic_tables.model import Intent, TableState
from dynamic_tables.refresh.abandoned import Abandoned
from dynamic_tables.refresh.context import Context
from dynamic_tables.refresh.freshness import Freshness, Observer
from dynamic_tables.refresh.run import new_refresh_id
from dynamic_tables.schedule import Pace, Schedule, Sighting, expected_s, looked_back, spared
from dynamic_tables.store import WantedRefresh

SCHEDULED, RECOVERY = "schedule", "recovery"  # triggers in history


class Asking:
    """Looks at all base tables at once, and asks for what follows from it."""

    def __init__(self, context: Context, pace: Pace) -> None:
        self._context, self._store, self._pace = context, context.store, pace
        self._abandoned = Abandoned(context)

    def ask(self) -> list[str]:
        """Queue up what is due, all of it at one cut; the ids come back, parents first."""
        self._context.catch_up()
        self._abandoned.end()
        queued = {item.table_id for item in self._store.pending()}
        states = {state.definition.table_id: state for state in self._store.tables()}
        graph = Graph(state.definition for state in states.values())
        now = self._store.now()
        seen = Observer(self._context.lake, graph, now).look(states)
        self._store.saw(seen.behind_since, {key: s.refreshed_at for key, s in states.items()})
        sightings = {key: self._sighting(states[key], seen) for key in seen.behind_since}
        schedule = Schedule(graph, sightings, now, self._pace)
        due = schedule.due(queued)
        wanted = [*_at_one_cut(due, seen), *self._left_open(schedule, seen, {*due, *queued})]
        if wanted:
            self._store.request(*wanted)
        return [item.table_id for item in wanted]

    def _sighting(self, state: TableState, seen: Freshness) -> Sighting:
        table_id = state.definition.table_id
        behind = seen.behind_since[table_id]
        count = looked_back(state, behind)
        past = self._store.history(table_id, count) if count else ()
        return Sighting(
            state=state,
            behind_since=behind,
            versions=seen.below[table_id],
            takes_s=expected_s(past),
            spared=spared(past),
        )

    def _left_open(
        self, schedule: Schedule, seen: Freshness, asked: set[str]
    ) -> list[WantedRefresh]:
        """A process that nobody had asked by the queue (a refresh by hand) may die, and a failed
        refresh may not have reached the lake to give its number up: what was committed would not
        be told, and what was staged lie about, until somebody came by."""
        left = [intent for intent in self._store.left_open() if intent.table_id not in asked]
        return [_completed(intent, seen) for intent in left if schedule.may_settle(intent.table_id)]


def _at_one_cut(due: Iterable[str], seen: Freshness) -> list[WantedRefresh]:
    refresh_id = new_refresh_id()
    return [
        WantedRefresh(
            table_id=table_id,
            refresh_id=refresh_id,
            trigger=SCHEDULED,
            cut=seen.cut,
            behind_since=seen.behind_since[table_id],
        )
        for table_id in due
    ]


def _completed(intent: Intent, seen: Freshness) -> WantedRefresh:
    """To the very cut that was chosen: its number and its slices are right for no other."""
    return WantedRefresh(
        table_id=intent.table_id,
        refresh_id=intent.refresh_id,
        trigger=RECOVERY,
        cut=intent.cut,
        behind_since=seen.behind_since[intent.table_id],
    )
