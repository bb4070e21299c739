"""Definitions as they are now: views may have a new text, parents a new name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dynamic_tables.definition import Definition, Hidden
from dynamic_tables.errors import Refused
from dynamic_tables.graph import Graph
from dynamic_tables.lake.base import DynamicSource, DynamicSources, Lake
from dynamic_tables.model import TableState
from dynamic_tables.names import TableName
from dynamic_tables.reasons import Reason


def dynamic_sources(states: Iterable[TableState]) -> DynamicSources:
    """All dynamic tables, as possible sources."""
    return {
        state.definition.name.key: DynamicSource(
            table_id=state.definition.table_id,
            location=state.definition.location,
            loaded=state.build is not None,
            columns=state.definition.columns,
            hidden=state.definition.hidden,
        )
        for state in states
    }


def as_now(lake: Lake, definition: Definition, graph: Graph, dynamic: DynamicSources) -> Definition:
    """Follow changed views and renamed parents; the same definition if there are none.

    A rename that died half-way is finished here: the child still has its parent's old name.
    """
    present = definition
    for source in definition.sources:
        if source.dynamic_id is not None and source.name != graph[source.dynamic_id].name:
            present = renamed(lake, present, source.name, graph[source.dynamic_id].name)
    present = lake.followed(_found(present, graph), dynamic)
    if present.sources != definition.sources:
        graph.check_no_cycle(present)
    return present


def _found(definition: Definition, graph: Graph) -> Definition:
    """Parents may have become views over their stored tables, or tables again."""
    return with_hidden(definition, {key: graph[key].hidden for key in definition.parents})


def with_hidden(definition: Definition, hidden: Mapping[str, Hidden | None]) -> Definition:
    """The definition over its parents as they are stored now, by their ids."""
    sources = tuple(
        replace(source, hidden=hidden[source.dynamic_id])
        if source.dynamic_id and source.dynamic_id in hidden
        else source
        for source in definition.sources
    )
    if sources == definition.sources:
        return definition
    return replace(definition, sources=sources, revision=definition.revision + 1)


def renamed(lake: Lake, child: Definition, old: TableName, new: TableName) -> Definition:
    """The child of a renamed table; its query says the new name."""
    query = lake.rename_in(child, old, new)
    if query == child.query:
        raise Refused(
            f"{child.name} reads it through a view, whose text is not ours to change",
            reason=Reason.HAS_CHILDREN,
            about=str(old),
            hint=f"drop {child.name}, rename, change the view, create {child.name} again",
        )
    sources = tuple(
        replace(source, name=new) if source.name.key == old.key else source
        for source in child.sources
    )
    auxiliary = child.auxiliary
    if auxiliary is not None:
        stored = replace(child, query=auxiliary.query)
        auxiliary = replace(auxiliary, query=lake.rename_in(stored, old, new))
    return replace(
        child,
        query=query,
        auxiliary=auxiliary,
        sources=sources,
        revision=child.revision + 1,
    )
