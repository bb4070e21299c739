"""What else is read where changes are joined: the other sides of joins."""

from __future__ import annotations

from dynamic_tables.compiler import tree
from dynamic_tables.compiler.functions import reads_clock
from dynamic_tables.compiler.tree import Node


def read_beside(node: Node, moved: frozenset[str], *, clock_moved: bool = False) -> frozenset[str]:
    """The sources whose rows are read to make the changes of a query of those of `moved` ones.

    Changes pass through filters, projections and UNION ALL alone; an inner join reads the other
    side of the one that changed. A filter whose clock moved lets other rows through. Whatever has a
    key reads all its input for the affected ones.
    """

    def beside(child: Node) -> frozenset[str]:
        return read_beside(child, moved, clock_moved=clock_moved)

    match node:
        case tree.Scan() | tree.Constant():
            return frozenset()
        case tree.Filter(child=child, condition=when) if clock_moved and reads_clock(when):
            return sources(child)
        case tree.Filter(child=child) | tree.Project(child=child) | tree.Explode(child=child):
            return beside(child)
        case tree.Union(children=children):
            return frozenset[str]().union(*map(beside, children))
        case tree.Join(left=left, right=right, kind=tree.JoinKind.INNER):
            found = beside(left) | beside(right)
            for changed, other in ((left, right), (right, left)):
                if clock_moved or sources(changed) & moved:
                    found |= sources(other)
            return found
        case _:
            reads = sources(node)
            return reads if clock_moved or reads & moved else frozenset()


def sources(node: Node) -> frozenset[str]:
    """The sources that a query reads."""
    return frozenset(item.source for item in tree.walk(node) if isinstance(item, tree.Scan))
