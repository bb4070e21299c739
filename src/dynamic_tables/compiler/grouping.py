"""GROUP BY: plain, ALL, ROLLUP, CUBE, GROUPING SETS, or none at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TYPE_CHECKING

from sqlglot import exp

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.refused import NotIncremental, unfaithful
from dynamic_tables.compiler.tree import (
    Aggregate,
    Expression,
    Filter,
    Named,
    Node,
    Project,
    Union,
    column,
    mentioned,
    rewritten,
)
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.compiler.build import Builder, Scope

WRAPPERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)  # of the function of a window
NESTED = (exp.Rollup, exp.Cube, exp.GroupingSets)
GroupingSet = tuple[Expression, ...]


@dataclass(slots=True)
class Folding:
    """Collects the aggregates of some expressions, each once."""

    builder: Builder
    keys: list[Named] = field(default_factory=list)
    aggregates: list[Named] = field(default_factory=list)

    def folded(self, expression: Expression) -> Expression:
        """The expression over keys and aggregates."""
        return rewritten(expression, self._replacement)

    def _replacement(self, node: Expression) -> Expression | None:
        for name, key in self.keys:
            if node == key:
                return column(name)
        if isinstance(node, exp.Window):
            return self._window(node)
        if functions.is_aggregate(node):
            return column(self._aggregate(node))
        return None

    def _window(self, window: exp.Window) -> Expression:
        """The function of a window is no aggregate, but its arguments may hold some."""
        new = window.copy()
        for part, value in window.args.items():
            if isinstance(value, list):
                new.set(part, [self.folded(item) for item in value])
            elif part == "this" and isinstance(value, exp.Expr):
                new.set(part, self._arguments(value))
            elif isinstance(value, exp.Expr):
                new.set(part, self.folded(value))
        return new

    def _arguments(self, function: Expression) -> Expression:
        new = function.copy()
        for part, value in function.args.items():
            if isinstance(value, list):
                new.set(part, [self.folded(v) if isinstance(v, exp.Expr) else v for v in value])
            elif isinstance(value, exp.Expr):
                inner = part == "this" and isinstance(function, WRAPPERS)
                new.set(part, self._arguments(value) if inner else self.folded(value))
        return new

    def _aggregate(self, node: Expression) -> str:
        for name, known in self.aggregates:
            if known == node:
                return name
        functions.check_stable(node)
        if functions.reads_clock(node):
            raise NotIncremental(Reason.TIME_IN_OUTPUT, "the time in an aggregate")
        name = self.builder.helper("value")
        self.aggregates.append((name, node))
        return name


def grouped(
    builder: Builder, node: Node, ast: exp.Select, expressions: list[Expression], scope: Scope
) -> tuple[Node, list[Expression]]:
    """Put an Aggregate above the node if the SELECT has one."""
    group, having = ast.args.get("group"), ast.args.get("having")
    if not (group or having or any(folds_rows(expression) for expression in expressions)):
        return node, expressions
    sets = _grouping_sets(builder, group, expressions, scope)
    folding = Folding(builder)
    for key in {key: None for grouping in sets for key in grouping}:
        if not mentioned(key):
            raise unfaithful("a constant in GROUP BY")
        if functions.reads_clock(key):
            raise NotIncremental(Reason.TIME_IN_OUTPUT, "the time in GROUP BY")
        if key.find(exp.Collate):
            raise NotIncremental(Reason.NON_DETERMINISTIC, "any of equal texts stands for a group")
        folding.keys.append((builder.helper("key"), key))
    if group is None or not _written_sets(group):
        ready = [folding.folded(expression) for expression in expressions]
        if not folding.keys and not folding.aggregates:  # HAVING alone makes one row
            folding.aggregates.append((builder.helper("value"), exp.Count(this=exp.Star())))
        result: Node = Aggregate(
            child=node, keys=tuple(folding.keys), aggregates=tuple(folding.aggregates)
        )
    else:
        result, ready = _several(builder, node, folding, sets, expressions)
    for expression in ready:
        unknown = mentioned(expression) - set(result.columns)
        if unknown:
            raise unfaithful(f"{', '.join(sorted(unknown))} is neither grouped nor aggregated")
    return result, ready


def folds_rows(expression: Expression) -> bool:
    """Whether the expression folds rows; a window function does not."""
    found = False

    def look(node: Expression) -> Expression | None:
        nonlocal found
        if isinstance(node, exp.Window):
            found = found or any(map(folds_rows, _parts(node)))
            return node
        if functions.is_aggregate(node):
            found = True
            return node
        return None

    rewritten(expression, look)
    return found


def _parts(window: exp.Window) -> list[Expression]:
    """What a window is made of, its function left out."""
    parts = [part for part in window.iter_expressions() if part is not window.this]
    function = window.this
    while isinstance(function, WRAPPERS):
        parts += [part for part in function.iter_expressions() if part is not function.this]
        function = function.this
    return [*parts, *function.iter_expressions()]


def _grouping_sets(
    builder: Builder, group: exp.Group | None, expressions: list[Expression], scope: Scope
) -> list[GroupingSet]:
    """GROUP BY as the list of its grouping sets; plain grouping has one."""
    if group is None:
        return [()]
    if group.args.get("all"):
        return [tuple(item for item in expressions if not folds_rows(item))]
    clauses = _written_sets(group)
    plain = [item for item in group.expressions if not isinstance(item, NESTED)]
    if len(clauses) == 1 and not clauses[0].expressions and plain == group.expressions:
        clause = clauses[0]  # GROUP BY a, b WITH ROLLUP
        clause.set("expressions", group.expressions)
        return _sets_of(builder.resolved(clause, scope))
    if builder.dialect == "spark" and clauses and plain:
        raise unfaithful("plain keys beside ROLLUP, CUBE or GROUPING SETS")
    parts = [
        _sets_of(builder.resolved(item, scope)) for item in (*group.expressions, *_clauses(group))
    ]
    return [
        tuple(dict.fromkeys(key for grouping in choice for key in grouping))
        for choice in product(*parts)
    ]


def _written_sets(group: exp.Group) -> list[Expression]:
    """ROLLUP, CUBE and GROUPING SETS, wherever they stand."""
    return _clauses(group) + [item for item in group.expressions if isinstance(item, NESTED)]


def _clauses(group: exp.Group) -> list[Expression]:
    return [
        item for name in ("rollup", "cube", "grouping_sets") for item in group.args.get(name) or ()
    ]


def _sets_of(item: Expression) -> list[GroupingSet]:
    match item:
        case exp.Rollup():
            units = [_unit(part) for part in item.expressions]
            return [_flat(units[:size]) for size in range(len(units), -1, -1)]
        case exp.Cube():
            units = [_unit(part) for part in item.expressions]
            sizes = range(len(units), -1, -1)
            return [_flat(chosen) for size in sizes for chosen in combinations(units, size)]
        case exp.GroupingSets():
            return [found for part in item.expressions for found in _sets_of(part)]
        case _:
            return [_unit(item)]


def _unit(item: Expression) -> GroupingSet:
    bare = item.unnest()
    return tuple(bare.expressions) if isinstance(bare, exp.Tuple) else (bare,)


def _flat(units: list[GroupingSet] | tuple[GroupingSet, ...]) -> GroupingSet:
    return tuple(key for unit in units for key in unit)


def _several(
    builder: Builder,
    node: Node,
    folding: Folding,
    sets: list[GroupingSet],
    expressions: list[Expression],
) -> tuple[Node, list[Expression]]:
    """One Aggregate a grouping set, side by side; a key outside the set is NULL.

    Spark gives no row for () over empty input, DuckDB gives one.
    """
    ids = _grouping_ids(builder, folding, expressions)
    ready = [folding.folded(expression) for expression in ids.replaced]
    rows = builder.helper("rows")
    parts: list[Node] = []
    for chosen in sets:
        keys = tuple(named for named in folding.keys if named[1] in chosen)
        counted = (rows, exp.Count(this=exp.Star()))
        part: Node = Aggregate(child=node, keys=keys, aggregates=(*folding.aggregates, counted))
        if not keys and builder.dialect == "spark":
            part = Filter(child=part, condition=exp.GT(this=column(rows), expression=_number(0)))
        present = {name for name, _ in keys}
        items = [
            *((n, column(n) if n in present else exp.null()) for n, _ in folding.keys),
            *((n, column(n)) for n, _ in folding.aggregates),
            *((name, _number(ids.value(name, chosen))) for name in ids.arguments),
        ]
        parts.append(Project(child=part, items=tuple(items)))
    return Union(children=tuple(parts)), ready


@dataclass(slots=True)
class _GroupingIds:
    """GROUPING(x) and GROUPING_ID(x, y): numbers that each grouping set knows beforehand."""

    arguments: dict[str, list[Expression]]
    replaced: list[Expression]

    def value(self, name: str, chosen: GroupingSet) -> int:
        bits = ["0" if key in chosen else "1" for key in self.arguments[name]]
        return int("".join(bits) or "0", 2)


def _grouping_ids(
    builder: Builder, folding: Folding, expressions: list[Expression]
) -> _GroupingIds:
    arguments: dict[str, list[Expression]] = {}

    def replace(node: Expression) -> Expression | None:
        if functions.function_name(node) not in ("grouping", "grouping_id"):
            return None
        given = list(node.args.get("expressions") or ([node.this] if node.this else []))
        given = [item for item in given if isinstance(item, exp.Expr)]
        name = builder.helper("id")
        arguments[name] = given or [key for _, key in folding.keys]
        return column(name)

    return _GroupingIds(arguments, [rewritten(expression, replace) for expression in expressions])


def _number(value: int) -> Expression:
    return exp.Literal.number(value)
