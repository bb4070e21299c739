"""Tables by the names that people type."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from dynamic_tables.ddl import Parts
from dynamic_tables.definition import Definition
from dynamic_tables.errors import InvalidInput, Refused
from dynamic_tables.lake.base import Lake
from dynamic_tables.lake.places import one_spelling
from dynamic_tables.model import TableState
from dynamic_tables.names import TableName, qualify, split_name
from dynamic_tables.reasons import Reason
from dynamic_tables.store import Store

HINTED = 10  # names, the nearest first


class Named:
    """What the store knows of a table, or an error that says what tables there are."""

    def __init__(self, lake: Lake, store: Store) -> None:
        self._lake = lake
        self._store = store

    def state(self, name: str | Parts) -> TableState:
        table = self._qualified(name)
        state = self._store.table(table.key)
        if state is None:
            raise self._unknown(table)
        return state

    def loaded(self, name: str) -> TableState:
        """A table that has rows, if only none."""
        state = self.state(name)
        if state.build is None:
            raise Refused(
                "the table is declared but not loaded yet",
                reason=Reason.NOT_INITIALIZED,
                about=str(state.definition.name),
                hint=f"REFRESH DYNAMIC TABLE {state.definition.name}",
            )
        return state

    def place(self, name: str) -> str:
        """Where a dynamic table is stored; any other table is known by its name."""
        state = self.dynamic(name)
        return state.definition.location if state is not None else name

    def dynamic(self, name: str) -> TableState | None:
        """The dynamic table of this name; or whose rows lie in a table of this name, or in this
        place. None: another table or place."""
        if "/" in name:
            place = one_spelling(name)
            return self._first(lambda found: one_spelling(found.location) == place)
        key = self._qualified(name).key
        return self._first(lambda found: key in (found.name.key, found.stored_name.key))

    def _first(self, is_meant: Callable[[Definition], bool]) -> TableState | None:
        return next((s for s in self._store.tables() if is_meant(s.definition)), None)

    def _qualified(self, name: str | Parts) -> TableName:
        parts = name if isinstance(name, tuple) else split_name(name)
        return qualify(parts, self._lake.namespace())

    def _unknown(self, table: TableName) -> InvalidInput:
        known = [str(state.definition.name) for state in self._store.tables()]
        nearest = get_close_matches(str(table), known, n=HINTED, cutoff=0)
        return InvalidInput(
            "there is no dynamic table of this name",
            reason=Reason.UNKNOWN_TABLE,
            about=str(table),
            hint=f"there are: {', '.join(nearest)}"
            if nearest
            else "CREATE DYNAMIC TABLE … makes one",
        )
