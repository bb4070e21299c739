"""Which output columns may differ in their last digits between two runs over the same rows.

Sums and averages of floating numbers do. The rows of such a query are found by their other columns,
and what is stored is compared with what was recomputed, never with what should have been there.
"""

from __future__ import annotations

from collections.abc import Iterable

from dynamic_tables.compiler.functions import may_round
from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.compiler.tree import (
    Aggregate,
    Constant,
    Distinct,
    Explode,
    Filter,
    Join,
    Mark,
    Named,
    Node,
    Project,
    Scan,
    SetOperation,
    Union,
    Window,
    mentioned,
)


def rounded_columns(plan: DeltaPlan) -> tuple[str, ...]:
    """The declared columns that come out of folded numbers, whatever their types."""
    rounded = _rounded(plan.node)
    pairs = zip(plan.node.columns, plan.columns, strict=True)
    return tuple(declared for name, declared in pairs if name in rounded)


def _rounded(node: Node) -> frozenset[str]:  # noqa: C901, PLR0911  one case an operator
    match node:
        case Scan() | Constant():
            return frozenset()
        case Filter() | Distinct():
            return _rounded(node.child)
        case Project():
            return _among(node.items, _rounded(node.child))
        case Explode():
            below = _rounded(node.child)
            touched = bool(mentioned(node.lateral) & below)
            return below | (frozenset(node.produced) if touched else frozenset())
        case Window():
            below = _rounded(node.child)
            return below | _among(node.items, below)
        case Aggregate():
            return _among((*node.keys, *node.aggregates), _rounded(node.child))
        case Join():
            return _rounded(node.left) | _rounded(node.right)
        case Mark():
            both = _rounded(node.left) | _rounded(node.right)
            asked = mentioned(node.condition) if node.condition is not None else frozenset()
            return both | (frozenset({node.name}) if asked & both else frozenset())
        case Union():
            return _by_place(node.children)
        case SetOperation():
            return _by_place((node.left, node.right))


def _among(items: Iterable[Named], below: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name, item in items if may_round(item) or mentioned(item) & below)


def _by_place(branches: tuple[Node, ...]) -> frozenset[str]:
    """All branches of a set operation have the columns of the first."""
    return frozenset().union(*map(_rounded, branches))
