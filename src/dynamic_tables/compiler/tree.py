"""The small tree of relational operators that a query becomes.

Every operator gives rows with named columns (`alias.column`). The inputs of an operator never share
a name, so an expression may mention a column without saying whose it is. Expressions are sqlglot's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from sqlglot import exp

Expression = exp.Expr
Named = tuple[str, Expression]  # an output column and what it is


class JoinKind(StrEnum):
    """RIGHT becomes LEFT and FULL becomes LEFT plus what the right side has alone."""

    INNER = "inner"  # CROSS is INNER without a condition
    LEFT = "left"
    SEMI = "semi"
    ANTI = "anti"


class SetKind(StrEnum):
    """UNION ALL is `Union`; UNION is `Distinct` over it."""

    INTERSECT = "intersect"
    EXCEPT = "except"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A source table, under the names that the query gives its columns."""

    source: str  # the key of the source
    names: tuple[tuple[str, str], ...]  # (column of the table, output column)
    types: tuple[tuple[str, str], ...] = ()  # (column of the table, type), where they are known

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output for _, output in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A relation that reads no table: VALUES, SELECT 1, range(5)."""

    query: Expression
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """WHERE, HAVING, QUALIFY."""

    child: Node
    condition: Expression

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The SELECT list."""

    child: Node
    items: tuple[Named, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explode:
    """One row per element: LATERAL VIEW, UNNEST. Linear, like a projection."""

    child: Node
    lateral: Expression  # what stands behind FROM child
    produced: tuple[str, ...]  # the columns that it adds

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, *self.produced)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Pairs of rows, or (SEMI, ANTI) left rows that have a partner or none."""

    left: Node
    right: Node
    kind: JoinKind
    condition: Expression | None

    @property
    def columns(self) -> tuple[str, ...]:
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return self.left.columns
        return (*self.left.columns, *self.right.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Left rows with one more column: has the row a partner? EXISTS and IN below OR or CASE."""

    left: Node
    right: Node
    condition: Expression | None
    name: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.left.columns, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """GROUP BY; without keys one row, always."""

    child: Node
    keys: tuple[Named, ...]
    aggregates: tuple[Named, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in (*self.keys, *self.aggregates))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Window functions; `keys` are the PARTITION BY columns that all of them share."""

    child: Node
    items: tuple[Named, ...]
    keys: tuple[Expression, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, *(name for name, _ in self.items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """Every row once."""

    child: Node

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """UNION ALL; all children have the same columns."""

    children: tuple[Node, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.children[0].columns


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOperation:
    """INTERSECT and EXCEPT, with ALL or without."""

    left: Node
    right: Node  # has the columns of the left one
    kind: SetKind
    keep_all: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns


Node = (
    Scan
    | Constant
    | Filter
    | Project
    | Explode
    | Join
    | Mark
    | Aggregate
    | Window
    | Distinct
    | Union
    | SetOperation
)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Scan() | Constant():
            return ()
        case Union():
            return node.children
        case Join() | Mark() | SetOperation():
            return (node.left, node.right)
        case _:
            return (node.child,)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def sources(node: Node) -> frozenset[str]:
    """The keys of the tables that are read."""
    return frozenset(item.source for item in walk(node) if isinstance(item, Scan))


def type_of(node: Node, expression: Expression) -> str | None:
    """The type of a column that comes from a source as it is; None: not known here."""
    if not isinstance(expression, exp.Column):
        return None
    name = expression.name
    match node:
        case Scan():
            spelled = {output: name for name, output in node.names}
            return dict(node.types).get(spelled.get(name, ""))
        case Project(items=items) | Aggregate(keys=items):
            item = dict(items).get(name)
            return type_of(node.child, item) if item is not None else None
        case Union() | SetOperation():
            return None  # the branches decide together
        case _:
            owner = (child for child in children(node) if name in child.columns)
            return next((type_of(child, expression) for child in owner), None)


def same_type(left: Node, one: Expression, right: Node, other: Expression) -> bool:
    """Whether equal values are the same value: 1 equals '1' and '01', which are not equal."""
    known = type_of(left, one)
    return known is not None and known == type_of(right, other)


def column(name: str) -> exp.Column:
    """A mention of a column of the tree."""
    return exp.column(exp.to_identifier(name, quoted=True))


def mentioned(expression: Expression) -> frozenset[str]:
    """The columns that an expression reads, those of its subqueries aside."""
    nodes = expression.walk(prune=lambda node: isinstance(node, exp.Query))
    return frozenset(node.name for node in nodes if isinstance(node, exp.Column))


def conjunction(parts: list[Expression]) -> Expression | None:
    """All of them, or nothing to ask."""
    return exp.and_(*parts, copy=False) if parts else None


def conjuncts(condition: Expression | None) -> list[Expression]:
    """The parts of a condition that must all hold."""
    if condition is None:
        return []
    bare = condition.unnest()
    if not isinstance(bare, exp.And):
        return [bare]
    return [*conjuncts(bare.left), *conjuncts(bare.right)]


def rewritten(expression: Expression, by: Callable[[Expression], Expression | None]) -> Expression:
    """A copy in which `by` replaced what it knows; subqueries and replacements are left alone."""

    def visit(node: Expression) -> Expression:
        new = by(node)
        if new is not None:
            return new
        if isinstance(node, exp.Query):
            return node
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(key, visit(value))
            elif isinstance(value, list):
                node.set(key, [visit(v) if isinstance(v, exp.Expr) else v for v in value])
        return node

    return visit(expression.copy())


def has_subquery(expression: Expression) -> bool:
    return expression.find(exp.Query) is not None


def expressions(  # noqa: PLR0911  one case an operator
    node: Node,
) -> list[tuple[Expression, tuple[str, ...]]]:
    """What an operator computes, each with the columns that it may read."""
    match node:
        case Filter():
            return [(node.condition, node.child.columns)]
        case Project():
            return [(item, node.child.columns) for _, item in node.items]
        case Explode():
            return [(node.lateral, node.columns)]
        case Aggregate():
            return [(item, node.child.columns) for _, item in (*node.keys, *node.aggregates)]
        case Window():
            return [(item, node.child.columns) for _, item in node.items]
        case Join() | Mark() if node.condition is not None:
            return [(node.condition, (*node.left.columns, *node.right.columns))]
        case _:
            return []


def unknown_columns(tree: Node) -> frozenset[str]:
    """Columns that are read where they are not: by a subquery that looks out too far."""
    found: set[str] = set()
    for node in walk(tree):
        for expression, there in expressions(node):
            found |= mentioned(expression) - set(there)
    return frozenset(found)
