"""What DROP takes away: definitions first, then names and files.

Nobody works on a table that the store does not know, so nothing is taken away under anybody's
hands. What the lake does not let go is put back into the store with all that it reads, so that it
can be used, and dropped again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.lake.base import Lake
from dynamic_tables.store import Claim, Dropped, Store


def remove(store: Store, lake: Lake, held: Mapping[str, Claim]) -> None:
    """The tables go in the order in which they are held, children first; the store refuses all or
    none, if somebody reads one of them."""
    dropped = store.delete_tables(held, held.values())
    left = [dropped.definitions[table_id] for table_id in held]
    gone: list[Definition] = []
    try:
        while left:
            _erase(lake, left[0])
            gone.append(left.pop(0))
    except BaseException as error:  # Ctrl-C too must leave no name that no statement removes
        told = _put_back(store, dropped, left)
        tell_too(error, f"dropped: {_names(gone)}; {told}" if gone else told)
        raise


def _erase(lake: Lake, definition: Definition) -> None:
    try:
        lake.unpublish(definition)
        lake.erase(definition)
    except lake.faults as error:
        raise lake.told(error, about=str(definition.name)) from error


def _put_back(store: Store, dropped: Dropped, left: Iterable[Definition]) -> str:
    """What became of the tables that did not go."""
    try:
        store.put_back(dropped, [definition.table_id for definition in left])
    except DynamicTablesError as second:
        return (
            f"not declared any more, though still in the lake: {_names(left)} ({second.message});"
            " `dynamic-tables doctor --rebuild` declares them again"
        )
    return f"still there: {_names(left)}; repeat the statement"


def tell_too(error: BaseException, told: str) -> None:
    """What an error leaves behind, instead of the way out that it knew."""
    error.add_note(told)
    if isinstance(error, DynamicTablesError):
        error.hint = told


def _names(definitions: Iterable[Definition]) -> str:
    return ", ".join(str(definition.name) for definition in definitions)
