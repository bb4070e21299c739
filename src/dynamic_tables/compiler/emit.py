"""From the tree to SQL: the rows of an operator before or after, if wanted for some keys only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from sqlglot import exp

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.tree import (
    Aggregate,
    Constant,
    Distinct,
    Explode,
    Expression,
    Filter,
    Join,
    JoinKind,
    Mark,
    Node,
    Project,
    Scan,
    SetOperation,
    Union,
    Window,
    children,
    conjuncts,
    mentioned,
    rewritten,
    same_type,
)

WEIGHT = "_dt_w"  # how often a row came (+) or went (-)


class Side(StrEnum):
    """Which of the two versions of the sources."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Within:
    """Only rows whose value of a column is among those of a column of keys."""

    keys: str  # a table of keys
    index: int  # which of its columns
    column: str  # of the source


class Leaves(Protocol):
    """What a lake supplies: relations, as text that may stand behind FROM."""

    def rows(self, source: str, side: Side, within: tuple[Within, ...] = ()) -> str: ...
    def changes(self, source: str) -> str: ...  # the source's columns and WEIGHT
    def clock(self, function: Expression, side: Side) -> Expression: ...
    def near(self, source: str, side: Side, within: Within, column: str) -> str: ...  # see `_near`


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """Only rows whose values of some expressions occur in a table of keys."""

    table: str  # a CTE with columns _dt_k0, _dt_k1, …
    values: tuple[Expression, ...]  # over the columns of the restricted node
    columns: tuple[int, ...] | None = None  # those of the table; None: as many, in their order

    def pairs(self) -> list[tuple[int, Expression]]:
        """The values, each with its column of the table."""
        return [*zip(self.columns or range(len(self.values)), self.values, strict=True)]

    def part(self, said: Callable[[Expression], Expression | None]) -> Restriction | None:
        """The same in other words, as far as there are some: whoever passes it may still be none of
        the wanted rows. None: nothing can be said."""
        if not self.values:
            return self
        found = [(column, said(value)) for column, value in self.pairs()]
        known = [(column, value) for column, value in found if value is not None]
        if not known:
            return None
        columns, values = zip(*known, strict=True)
        return Restriction(table=self.table, values=values, columns=columns)

    def reads(self) -> frozenset[str]:
        return frozenset(name for value in self.values for name in mentioned(value))


def key_column(index: int) -> str:
    return f"_dt_k{index}"


@dataclass(slots=True)
class Emitter:
    """Writes SELECTs in one dialect over one set of leaves."""

    dialect: str
    leaves: Leaves
    ctes: list[tuple[str, str]] = field(default_factory=list)

    # Words

    def quote(self, name: str) -> str:
        return exp.to_identifier(name, quoted=True).sql(dialect=self.dialect)

    def text(self, expression: Expression, side: Side = Side.AFTER) -> str:
        """An expression, with the time that it is on this side."""
        if functions.reads_clock(expression):
            expression = rewritten(
                expression,
                lambda n: self.leaves.clock(n, side) if functions.is_clock(n) else None,
            )
        return expression.sql(dialect=self.dialect)

    def listed(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.quote, names))

    def cte(self, prefix: str, sql: str) -> str:
        """Give a query a name."""
        name = f"_dt_{prefix}{len(self.ctes)}"
        self.ctes.append((name, sql))
        return name

    def with_ctes(self, sql: str) -> str:
        if not self.ctes:
            return sql
        named = ",\n".join(f"{name} AS (\n{text}\n)" for name, text in self.ctes)
        return f"WITH {named}\n{sql}"

    # Rows

    def rows(self, node: Node, side: Side, only: Restriction | None = None) -> str:
        """The rows of a node; with `only`, at least all rows of those keys and no others."""
        inside, exact = self._pushed(node, only)
        sql = self._operator(node, side, inside)
        if only is None or exact:
            return sql
        return f"SELECT * FROM ({sql}) AS q WHERE {self.matches(only)}"

    def matches(self, only: Restriction) -> str:
        same = [
            f"k.{key_column(index)} IS NOT DISTINCT FROM {self.text(value)}"
            for index, value in only.pairs()
        ]
        where = f" WHERE {' AND '.join(same)}" if same else ""
        return f"EXISTS (SELECT 1 FROM {only.table} AS k{where})"

    def _operator(  # noqa: PLR0911, C901  one case an operator
        self, node: Node, side: Side, inside: list[Restriction | None]
    ) -> str:
        match node:
            case Scan():
                return self._scan(node, side, inside[0])
            case Constant():
                query = node.query.sql(dialect=self.dialect)
                return f"SELECT {self.listed(node.columns)} FROM ({query}) AS q"
            case Filter():
                child = self.rows(node.child, side, inside[0])
                return f"SELECT * FROM ({child}) AS q WHERE {self.text(node.condition, side)}"
            case Project():
                return self.projected(node, self.rows(node.child, side, inside[0]))
            case Explode():
                return self.exploded(node, self.rows(node.child, side, inside[0]))
            case Join():
                left = self.rows(node.left, side, inside[0])
                return self.joined(node, left, self.rows(node.right, side, inside[1]))
            case Mark():
                left = self.rows(node.left, side, inside[0])
                return self.marked(node, left, self.rows(node.right, side, inside[1]))
            case Aggregate():
                return self._aggregated(node, self.rows(node.child, side, inside[0]))
            case Window():
                child = self.rows(node.child, side, inside[0])
                items = ", ".join(f"{self.text(e)} AS {self.quote(n)}" for n, e in node.items)
                return f"SELECT *, {items} FROM ({child}) AS q"
            case Distinct():
                return f"SELECT DISTINCT * FROM ({self.rows(node.child, side, inside[0])}) AS q"
            case Union():
                pairs = zip(node.children, inside, strict=True)
                parts = [
                    f"SELECT {self.listed(node.columns)} FROM ({self.rows(c, side, r)}) AS q"
                    for c, r in pairs
                ]
                return " UNION ALL ".join(parts)
            case SetOperation():
                word = f"{node.kind.value.upper()}{' ALL' if node.keep_all else ''}"
                both = [
                    f"SELECT {self.listed(node.columns)} FROM ({self.rows(child, side, r)}) AS q"
                    for child, r in zip((node.left, node.right), inside, strict=True)
                ]
                return f"{both[0]} {word} {both[1]}"

    def _scan(self, node: Scan, side: Side, only: Restriction | None) -> str:
        """A lake may leave out rows of other keys; the condition is there all the same."""
        columns = ", ".join(f"{self.quote(a)} AS {self.quote(b)}" for a, b in node.names)
        within = _within(node, only) if only is not None else ()
        sql = f"SELECT {columns} FROM {self.leaves.rows(node.source, side, within)}"
        if only is None:
            return sql
        near = self._near(node, side, only, within)
        return f"SELECT * FROM ({sql}) AS q WHERE {near}{self.matches(only)}"

    def _near(self, node: Scan, side: Side, only: Restriction, within: tuple[Within, ...]) -> str:
        """What a lake knows about the keys and can say with literals, so that files are skipped:
        nothing, or a condition with an AND behind it."""
        values = dict(only.pairs())
        return "".join(
            self.leaves.near(node.source, side, each, self.quote(values[each.index].name))
            for each in within
        )

    def projected(self, node: Project, child: str, *, also: str = "") -> str:
        items = ", ".join(f"{self.text(e)} AS {self.quote(n)}" for n, e in node.items)
        return f"SELECT {items}{also} FROM ({child}) AS q"

    def exploded(self, node: Explode, child: str, *, also: str = "") -> str:
        lateral = node.lateral.sql(dialect=self.dialect)
        return f"SELECT {self.listed(node.columns)}{also} FROM ({child}) AS q {lateral}"

    def joined(self, node: Join, left: str, right: str, *, weight: str = "") -> str:
        """Two relations joined as the node says; `weight` names the side that carries weights."""
        on = f" ON {self.text(node.condition)}" if node.condition is not None else " ON TRUE"
        columns = self.listed(node.columns) + (f", {weight}.{WEIGHT}" if weight else "")
        if node.kind in (JoinKind.SEMI, JoinKind.ANTI):
            no = "" if node.kind is JoinKind.SEMI else "NOT "
            partner = self._partner(node, right)
            return f"SELECT {columns} FROM ({left}) AS l WHERE {no}{partner}"
        word = "JOIN" if node.kind is JoinKind.INNER else "LEFT JOIN"
        return f"SELECT {columns} FROM ({left}) AS l {word} ({right}) AS r{on}"

    def marked(self, node: Mark, left: str, right: str, *, also: str = "") -> str:
        found = f"{self._partner(node, right)} AS {self.quote(node.name)}"
        return f"SELECT {self.listed(node.left.columns)}, {found}{also} FROM ({left}) AS l"

    def _partner(self, node: Join | Mark, right: str) -> str:
        where = f" WHERE {self.text(node.condition)}" if node.condition is not None else ""
        return f"EXISTS (SELECT 1 FROM ({right}) AS r{where})"

    def _aggregated(self, node: Aggregate, child: str) -> str:
        named = (*node.keys, *node.aggregates)
        items = ", ".join(f"{self.text(e)} AS {self.quote(n)}" for n, e in named) or "1"
        group = ", ".join(self.text(key) for _, key in node.keys)
        return f"SELECT {items} FROM ({child}) AS q" + (f" GROUP BY {group}" if group else "")

    # Keys on their way down

    def _pushed(  # noqa: C901, PLR0911  one case an operator
        self, node: Node, only: Restriction | None
    ) -> tuple[list[Restriction | None], bool]:
        """What each child may be restricted to, and whether that already says all."""
        if only is None:
            return [None for _ in children(node)] or [None], True
        match node:
            case Scan():
                return [only], True
            case Constant():
                return [], False
            case Filter() | Distinct():
                return [only], True
            case Project():
                return _through_items(only, dict(node.items))
            case Aggregate(keys=()):
                return [None], False  # over no rows it has one row all the same
            case Aggregate():
                return _through_items(only, dict(node.keys))
            case Explode():
                return _where(only, lambda value: mentioned(value) <= {*node.child.columns})
            case Window():
                return _where(only, lambda value: value in node.keys)
            case Union() | SetOperation():  # a branch may have other types than the whole
                return [None for _ in children(node)], False
            case Join() | Mark():
                return _through_join(node, only)


def _within(node: Scan, only: Restriction) -> tuple[Within, ...]:
    columns = {output: column for column, output in node.names}
    return tuple(
        Within(only.table, index, columns[value.name])
        for index, value in only.pairs()
        if isinstance(value, exp.Column) and value.name in columns
    )


def _where(
    only: Restriction, known: Callable[[Expression], bool]
) -> tuple[list[Restriction | None], bool]:
    """The values that the child knows, too."""
    part = only.part(lambda value: value if known(value) else None)
    return [part], all(known(value) for value in only.values)


def _through_items(
    only: Restriction, items: dict[str, Expression]
) -> tuple[list[Restriction | None], bool]:
    """Values in terms of the child's columns, if they are plain functions of them."""

    def known(value: Expression) -> bool:
        names = mentioned(value)
        return names <= items.keys() and not any(
            functions.is_generator(found) for name in names for found in items[name].walk()
        )

    def replace(found: Expression) -> Expression | None:
        if not isinstance(found, exp.Column):
            return None
        item = items[found.name]
        return item.copy() if isinstance(item, exp.Column) else exp.paren(item)

    part = only.part(lambda value: rewritten(value, replace) if known(value) else None)
    return [part], all(known(value) for value in only.values)


def _through_join(node: Join | Mark, only: Restriction) -> tuple[list[Restriction | None], bool]:
    """Each side by the values that it has, or that the condition says are equal to some of its own.

    A row on the left that finds no partner is padded, or marked as without one: so the right side
    is restricted only to what may be the partner of a row that is left on the left.
    """
    left, right = set(node.left.columns), set(node.right.columns)
    inner = isinstance(node, Join) and node.kind is JoinKind.INNER
    equal = [
        (one, other)
        for one, other in equalities(node)
        if same_type(node.left, one, node.right, other)
    ]

    def on_left(value: Expression) -> Expression | None:
        if mentioned(value) <= left:
            return value
        return next((one for one, other in equal if inner and other == value), None)

    def on_right(value: Expression) -> Expression | None:
        if inner and mentioned(value) <= right:
            return value
        return next((other for one, other in equal if one == value), None)

    reads = only.reads()
    says_all = reads <= left or (inner and reads <= right)
    return [only.part(on_left), only.part(on_right) if only.values else None], says_all


def equalities(node: Join | Mark) -> list[tuple[Expression, Expression]]:
    """(left, right) of the equalities in the condition."""
    left, right = set(node.left.columns), set(node.right.columns)
    found = []
    for part in conjuncts(node.condition):
        if not isinstance(part, (exp.EQ, exp.NullSafeEQ)):
            continue
        for one, other in ((part.left, part.right), (part.right, part.left)):
            if (
                mentioned(one)
                and mentioned(other)
                and mentioned(one) <= left
                and mentioned(other) <= right
            ):
                found.append((one, other))
                break
    return found
