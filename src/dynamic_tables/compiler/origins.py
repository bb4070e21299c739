"""Where a column comes from, as long as nobody computes with it."""

from __future__ import annotations

from sqlglot import exp

from dynamic_tables.compiler.tree import (
    Aggregate,
    Distinct,
    Explode,
    Filter,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    Window,
)


def origin(node: Node, name: str) -> tuple[str, str] | None:  # noqa: PLR0911  one case an operator
    """The source and its column that a column of a node is; None: another value, or of several.

    Of a LEFT join only the left side counts: the right one's columns may be NULL without a row.
    """
    match node:
        case Scan():
            return next(((node.source, column) for column, out in node.names if out == name), None)
        case Project():
            return _named(node.child, dict(node.items).get(name))
        case Aggregate():
            return _named(node.child, dict(node.keys).get(name))
        case Filter() | Distinct() | Window() | Explode() if name in node.child.columns:
            return origin(node.child, name)
        case Join() if name in node.left.columns:
            return origin(node.left, name)
        case Join(kind=JoinKind.INNER) if name in node.right.columns:
            return origin(node.right, name)
        case _:
            return None


def _named(child: Node, value: exp.Expr | None) -> tuple[str, str] | None:
    return origin(child, value.name) if isinstance(value, exp.Column) else None
