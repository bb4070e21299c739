"""A condition of WHERE goes as deep as it can: `FROM a, b WHERE a.x = b.x` is a join on x.

The delta of a join is computed term by term and used more than once. With the condition above, each
of those terms would be a cross product, and affected keys could not be pushed to the other side.
"""

from __future__ import annotations

from dataclasses import replace

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.tree import (
    Expression,
    Filter,
    Join,
    JoinKind,
    Mark,
    Node,
    conjunction,
    conjuncts,
    mentioned,
)


def sunk(node: Node, condition: Expression) -> Node:  # noqa: PLR0911  one case an operator
    """The node's rows for which the condition holds.

    What reads the clock stays above: the rule for passing time is the filter's.
    """
    needed = mentioned(condition)
    if functions.reads_clock(condition) or not needed:
        return Filter(child=node, condition=condition)
    match node:
        case Filter():
            below = sunk(node.child, condition)
            if isinstance(below, Filter) and below.child is node.child:
                return Filter(child=node, condition=condition)  # conditions keep their order
            return replace(node, child=below)
        case Join() | Mark() if needed <= set(node.left.columns):
            return replace(node, left=sunk(node.left, condition))
        case Join(kind=JoinKind.INNER) if needed <= set(node.right.columns):
            return replace(node, right=sunk(node.right, condition))
        case Join(kind=JoinKind.INNER):
            both = [*conjuncts(node.condition), condition]
            return replace(node, condition=conjunction(both))
    return Filter(child=node, condition=condition)
