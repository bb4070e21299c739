"""A lost store is made anew from the lake: definitions from properties, states from commits."""

from __future__ import annotations

from dynamic_tables.definition import Definition
from dynamic_tables.graph import Graph
from dynamic_tables.lake.base import Lake
from dynamic_tables.names import TableName
from dynamic_tables.refresh.states import newest_build
from dynamic_tables.store import Store


def rebuild_store(lake: Lake, store: Store) -> list[TableName]:
    """Add every table of the lake that the store does not know; the names come back.

    Tables are matched by id and location. Of the state, only `no_data` records are lost: the table
    equals its query at the older cut as well.
    """
    found = {
        definition.table_id: definition
        for definition in lake.stored_definitions()
        if store.table_by_id(definition.table_id) is None
    }
    known = {state.definition.table_id: state.definition for state in store.tables()}
    graph = Graph([*known.values(), *_complete(found, known)])
    restored = []
    for table_id in graph.order(set(graph) & set(found)):
        definition = graph[table_id]
        store.create_table(definition)
        build = newest_build(lake, definition)
        if build is not None:
            store.adopt_build(build)
            lake.publish(definition)
        restored.append(definition.name)
    return restored


def _complete(found: dict[str, Definition], known: dict[str, Definition]) -> list[Definition]:
    """Definitions whose dynamic sources are all there; others would hang in the air."""
    complete = dict(found)
    while True:
        there = complete.keys() | known.keys()
        lost = [key for key, item in complete.items() if not set(item.parents) <= there]
        if not lost:
            return list(complete.values())
        for key in lost:
            del complete[key]
