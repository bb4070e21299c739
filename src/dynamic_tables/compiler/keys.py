"""The key of a query: output columns by which its affected rows can be found and replaced.

An operator with keys (GROUP BY, DISTINCT, a window) gives them; projections and filters above pass
them on as long as the columns reach the output. HAVING and QUALIFY above do no harm: the affected
keys are found below them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from dynamic_tables.compiler.functions import reads_clock
from dynamic_tables.compiler.tree import (
    Aggregate,
    Distinct,
    Expression,
    Filter,
    Node,
    Project,
    SetOperation,
    Window,
    column,
)

Inputs = tuple[tuple[Node, tuple[Expression, ...]], ...]  # whose changes give keys, and how


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Where affected keys come from, and what they are called in the output."""

    inputs: Inputs
    values: tuple[Expression, ...]  # over the output columns

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.values)


def keys_below(
    node: Aggregate | Window | Distinct | SetOperation,
) -> tuple[Inputs, tuple[Expression, ...]]:
    """Where an operator's affected keys come from, and its keys in terms of its own columns."""
    match node:
        case Aggregate():
            given = tuple(key for _, key in node.keys)
            return ((node.child, given),), tuple(column(name) for name, _ in node.keys)
        case Window():
            return ((node.child, node.keys),), node.keys
        case Distinct():
            every = tuple(map(column, node.columns))
            return ((node.child, every),), every
        case SetOperation():
            every = tuple(map(column, node.columns))
            return ((node.left, every), (node.right, every)), every


def key_of(node: Node) -> Key | None:
    """The key of a query's rows, if it has one that reaches the output."""
    match node:
        case Aggregate() | Window() | Distinct() | SetOperation():
            inputs, values = keys_below(node)
            plain = all(isinstance(value, exp.Column) for value in values)
            return Key(inputs=inputs, values=values) if plain else None
        case Filter():  # as time passes, rows enter and leave without a changed key
            return None if reads_clock(node.condition) else key_of(node.child)
        case Project():
            return _projected(node)
        case _:
            return None


def _projected(node: Project) -> Key | None:
    below = key_of(node.child)
    if below is None:
        return None
    values = []
    for value in below.values:
        name = next((name for name, item in node.items if item == value), None)
        if name is None:
            return None
        values.append(column(name))
    return Key(inputs=below.inputs, values=tuple(values))
