"""The graph: base tables at the left, what reads them below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from dynamic_tables.definition import Definition, Source
from dynamic_tables.graph import Graph
from dynamic_tables.model import TableState
from dynamic_tables.render.tables import reads_text, status_text

States = Mapping[str, TableState]  # by table id


def graph_tree(graph: Graph, states: States) -> RenderableType:
    """Base tables at the left, what reads them below; each dynamic table is expanded once."""
    bases: dict[str, list[str]] = {}
    labels: dict[str, Source] = {}
    for table_id in graph.order(graph):
        for source in graph[table_id].sources:
            if source.dynamic_id is None:
                bases.setdefault(source.name.key, []).append(table_id)
                labels[source.name.key] = source
    rootless = [key for key in graph.order(graph) if not graph[key].sources]
    shown: set[str] = set()
    trees = []
    for key in sorted(bases):
        tree = Tree(_base_label(labels[key], states.values()), guide_style="dim")
        for table_id in bases[key]:
            _grow(tree, graph, states, table_id, shown)
        trees.append(tree)
    for table_id in rootless:
        tree = Tree(_label(states[table_id]), guide_style="dim")
        _branch(tree, graph, states, table_id, shown)
        trees.append(tree)
    return Group(*trees)


def _base_label(source: Source, states: Iterable[TableState]) -> Text:
    builds = [state.build for state in states if state.build]
    pins = [pin for build in builds for pin in build.pins if pin.name.key == source.name.key]
    versions = sorted({pin.version for pin in pins})
    label = Text(str(source.name), style="cyan")
    label.append("".join(f" @{version}" for version in versions), style="dim")
    return label


def _grow(tree: Tree, graph: Graph, states: States, table_id: str, shown: set[str]) -> None:
    if table_id in shown:
        tree.add(Text(f"{graph[table_id].name} (above)", style="dim"))
        return
    _branch(tree.add(_label(states[table_id])), graph, states, table_id, shown)


def _branch(tree: Tree, graph: Graph, states: States, table_id: str, shown: set[str]) -> None:
    shown.add(table_id)
    for child in graph.children(table_id):
        _grow(tree, graph, states, child, shown)


def _label(state: TableState) -> Text:
    label = Text(str(state.definition.name), style="bold")
    if state.build is not None:
        label.append(f" @{state.build.version}", style="dim")
    status = status_text(state)
    if status.plain != "active":
        label.append_text(Text(" ")).append_text(status)
    if len(state.definition.sources) > 1:
        label.append(f"  reads {reads_text(state)}", style="dim")
    return label


def graph_json(graph: Graph, states: States) -> dict[str, Any]:
    """Nodes and edges for `--json`."""
    order = graph.order(graph)
    return {
        "tables": [_node(graph[key], states[key]) for key in order],
        "edges": [
            {"from": str(source.name), "to": str(graph[key].name)}
            for key in order
            for source in graph[key].sources
        ],
    }


def _node(definition: Definition, state: TableState) -> dict[str, Any]:
    return {
        "table": str(definition.name),
        "version": state.build.version if state.build else None,
        "status": state.status.value,
        "reads": {str(pin.name): pin.version for pin in state.build.pins} if state.build else {},
    }
