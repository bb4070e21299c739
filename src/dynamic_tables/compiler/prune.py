"""Drop what nobody reads: columns of sources first of all.

A source is read for the columns that the query needs, so an update of any other column vanishes
from its changes, and a column that is not used may be dropped from the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dynamic_tables.compiler.functions import makes_rows
from dynamic_tables.compiler.tree import (
    Aggregate,
    Constant,
    Distinct,
    Explode,
    Expression,
    Filter,
    Join,
    Mark,
    Node,
    Project,
    Scan,
    SetOperation,
    Union,
    Window,
    column,
    mentioned,
)

Needed = frozenset[str]


def pruned(node: Node, needed: Needed | None = None) -> Node:  # noqa: C901, PLR0911  one case an operator
    """The node with at least the needed columns; at the root, all of them."""
    wanted = frozenset(node.columns) if needed is None else needed
    match node:
        case Scan():
            kept = tuple(pair for pair in node.names if pair[1] in wanted)
            return replace(node, names=kept or node.names[:1])
        case Constant():
            return node
        case Filter():
            return replace(node, child=pruned(node.child, wanted | mentioned(node.condition)))
        case Project():
            kept = tuple(i for i in node.items if i[0] in wanted or makes_rows(i[1]))
            kept = kept or node.items[:1]
            return replace(node, items=kept, child=pruned(node.child, _all(e for _, e in kept)))
        case Explode():
            return replace(node, child=pruned(node.child, wanted | mentioned(node.lateral)))
        case Join() | Mark():
            both = wanted | (mentioned(node.condition) if node.condition is not None else set())
            left, right = pruned(node.left, both), pruned(node.right, both)
            return replace(node, left=left, right=right)
        case Aggregate():
            kept = tuple(item for item in node.aggregates if item[0] in wanted)
            if not node.keys:
                kept = kept or node.aggregates[:1]  # a row has at least one column
            read = _all(e for _, e in (*node.keys, *kept))
            return replace(node, aggregates=kept, child=pruned(node.child, read))
        case Window():
            read = _all((*node.keys, *(e for _, e in node.items)))
            return replace(node, child=pruned(node.child, wanted | read))
        case Distinct():
            return replace(node, child=pruned(node.child, frozenset(node.columns)))
        case SetOperation():
            every = frozenset(node.columns)
            return replace(node, left=pruned(node.left, every), right=pruned(node.right, every))
        case Union():
            names = tuple(name for name in node.columns if name in wanted) or node.columns[:1]
            return replace(node, children=tuple(_exactly(child, names) for child in node.children))


def _exactly(node: Node, names: tuple[str, ...]) -> Node:
    """The node with these columns and no others, as the branches of a union must have."""
    child = pruned(node, frozenset(names))
    if child.columns == names:
        return child
    return Project(child=child, items=tuple((name, column(name)) for name in names))


def _all(expressions: Iterable[Expression]) -> Needed:
    return frozenset(name for expression in expressions for name in mentioned(expression))
