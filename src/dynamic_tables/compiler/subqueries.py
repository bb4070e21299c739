"""EXISTS, IN and scalar subqueries become joins.

As a condition of its own, EXISTS or IN is a semi join, NOT EXISTS an anti join. NOT IN is an anti
join whose condition also holds when the comparison is unknown: that is exactly its NULL semantics.
Below OR or CASE the answer is a column (`Mark`). A scalar subquery over an aggregate is a join with
that aggregate, grouped by what correlates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.grouping import Folding, folds_rows
from dynamic_tables.compiler.refused import NotIncremental, unfaithful
from dynamic_tables.compiler.sink import sunk
from dynamic_tables.compiler.tree import (
    Aggregate,
    Distinct,
    Expression,
    Join,
    JoinKind,
    Mark,
    Named,
    Node,
    Project,
    column,
    conjunction,
    conjuncts,
    has_subquery,
    mentioned,
    rewritten,
    same_type,
)
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.compiler.build import Builder, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """The rows of a subquery, what ties them to the outer row, and its SELECT list."""

    node: Node
    ties: list[Expression]
    outputs: list[Expression]


def filtered(builder: Builder, node: Node, condition: Expression, scope: Scope) -> Node:
    """WHERE or HAVING above a node."""
    for part in conjuncts(condition):
        node = _condition(builder, node, part, scope)
    return node


def _condition(builder: Builder, node: Node, part: Expression, scope: Scope) -> Node:
    negated = isinstance(part, exp.Not)
    bare = part.this.unnest() if negated else part
    if _asks_a_query(bare):
        inner = _inner(builder, _at_least_one(bare.this), scope)
        return _partnered(node, inner, inner.ties, negated=negated)
    if isinstance(bare, exp.In) and bare.args.get("query"):
        inner = _inner(builder, bare.args["query"], scope)
        equal = _equal(builder.resolved(bare.this, scope), inner)
        if negated:
            _check_single(builder, inner)
            equal = exp.Coalesce(this=exp.paren(equal), expressions=[exp.true()])
        return _partnered(node, inner, [*inner.ties, equal], negated=negated)
    node, ready = attach(builder, node, builder.resolved(part, scope), scope)
    functions.check_stable(ready)
    return sunk(node, ready)


def _asks_a_query(found: Expression) -> bool:
    """EXISTS; EXISTS(array, predicate) of Spark is a function over an array."""
    return isinstance(found, exp.Exists) and isinstance(found.this, (exp.Query, exp.Subquery))


def _at_least_one(asked: Expression) -> Expression:
    """The query below EXISTS, which one row is enough for: LIMIT 1 says nothing there.

    >>> import sqlglot
    >>> _at_least_one(sqlglot.parse_one("SELECT 1 FROM s LIMIT 1")).sql()
    'SELECT 1 FROM s'
    """
    limit = asked.args.get("limit")
    number = limit.expression if isinstance(limit, exp.Limit) else None
    if not isinstance(number, exp.Literal) or not number.is_int or int(number.this) < 1:
        return asked
    bare = asked.copy()
    bare.set("limit", None)
    return bare


def _partnered(node: Node, inner: Inner, parts: list[Expression], *, negated: bool) -> Node:
    if any(map(functions.reads_clock, parts)):
        raise unfaithful("the time in a correlated condition")
    return Join(
        left=node,
        right=inner.node,
        kind=JoinKind.ANTI if negated else JoinKind.SEMI,
        condition=conjunction(parts),
    )


def _equal(value: Expression, inner: Inner) -> Expression:
    """`value = (the subquery's columns)`."""
    if has_subquery(value):
        raise unfaithful("a subquery on the left of IN")
    bare = value.unnest()
    values = bare.expressions if isinstance(bare, exp.Tuple) else [bare]
    if len(values) != len(inner.outputs):
        raise unfaithful("IN with another number of columns")
    pairs = [
        exp.EQ(this=one.copy(), expression=other.copy())
        for one, other in zip(values, inner.outputs, strict=True)
    ]
    return exp.and_(*pairs)


def _check_single(builder: Builder, inner: Inner) -> None:
    """DuckDB has its own idea of NULLs in tuples."""
    if builder.dialect == "duckdb" and len(inner.outputs) > 1:
        raise unfaithful("tuples in NOT IN, or in IN as a value")


def attach(
    builder: Builder, node: Node, expression: Expression, scope: Scope
) -> tuple[Node, Expression]:
    """Join to the node what the expression's subqueries say, and let the expression read it."""
    current = node

    def replace(found: Expression) -> Expression | None:
        nonlocal current
        if _asks_a_query(found):
            inner = _inner(builder, _at_least_one(found.this), scope)
            current, name = _marked(builder, current, inner, inner.ties)
            return column(name)
        if isinstance(found, exp.In) and found.args.get("query"):
            inner = _inner(builder, found.args["query"], scope)
            current, answer = _is_in(builder, current, found.this, inner)
            return answer
        if isinstance(found, (exp.Any, exp.All)) and has_subquery(found):
            raise unfaithful("ANY or ALL over a subquery")
        if isinstance(found, exp.Subquery):
            current, value = _scalar(builder, current, found.this, scope)
            return value
        return None

    ready = rewritten(expression, replace)
    return current, ready


def _marked(
    builder: Builder, node: Node, inner: Inner, parts: list[Expression]
) -> tuple[Node, str]:
    if any(map(functions.reads_clock, parts)):
        raise unfaithful("the time in a correlated condition")
    name = builder.helper("found")
    mark = Mark(left=node, right=inner.node, condition=conjunction(parts), name=name)
    return mark, name


def _is_in(
    builder: Builder, node: Node, value: Expression, inner: Inner
) -> tuple[Node, Expression]:
    """TRUE with a partner; else NULL if some comparison is unknown; else FALSE."""
    _check_single(builder, inner)
    equal = _equal(value, inner)
    node, found = _marked(builder, node, inner, [*inner.ties, equal])
    unknown = exp.Is(this=exp.paren(equal.copy()), expression=exp.null())
    node, maybe = _marked(builder, node, inner, [*inner.ties, unknown])
    answer = exp.Case(
        ifs=[
            exp.If(this=column(found), true=exp.true()),
            exp.If(this=column(maybe), true=exp.null()),
        ],
        default=exp.false(),
    )
    return node, answer


# The rows of a subquery


def _inner(builder: Builder, ast: Expression, scope: Scope) -> Inner:
    """A plain SELECT keeps its ties to the outer row; any other query must have none."""
    bare = ast.this if isinstance(ast, exp.Subquery) and not ast.args.get("with_") else ast
    if isinstance(bare, exp.Select) and _is_plain(bare):
        node, ties, inside = _body(builder, bare, scope)
        outputs = [builder.resolved(item.unalias(), inside) for item in bare.selects]
        if not any(map(has_subquery, outputs)):
            return Inner(node=node, ties=ties, outputs=outputs)
    node = builder.query(bare, scope)
    return Inner(node=node, ties=[], outputs=[column(name) for name in node.columns])


def _is_plain(ast: exp.Select) -> bool:
    """Only FROM and WHERE decide which rows there are; to EXISTS and IN, DISTINCT is nothing."""
    clauses = ("group", "having", "qualify", "limit", "offset", "windows", "pivots", "with_")
    if any(ast.args.get(clause) for clause in clauses):
        return False
    return not any(
        functions.is_aggregate(node) or isinstance(node, exp.Window) or functions.is_generator(node)
        for item in ast.selects
        for node in item.walk(prune=lambda n: isinstance(n, exp.Query))
    )


def _body(builder: Builder, ast: exp.Select, scope: Scope) -> tuple[Node, list[Expression], Scope]:
    """FROM and WHERE of a subquery; conditions that read the outer row are kept apart."""
    builder.check_clauses(ast)
    node, inside = builder.from_clause(ast, scope)
    ties: list[Expression] = []
    where = ast.args.get("where")
    for part in conjuncts(where.this if where else None):
        if has_subquery(part):
            node = _condition(builder, node, part, inside)
            continue
        resolved = builder.resolved(part, inside)
        if mentioned(resolved) <= set(node.columns):
            functions.check_stable(resolved)
            node = sunk(node, resolved)
        else:
            ties.append(resolved)
    return node, ties, inside


# Scalar subqueries


def _scalar(builder: Builder, node: Node, ast: Expression, scope: Scope) -> tuple[Node, Expression]:
    """(SELECT aggregate FROM … WHERE …): one value for each outer row."""
    if not isinstance(ast, exp.Select) or not _is_one_row(ast):
        raise unfaithful("a scalar subquery that is no plain aggregate")
    inner, ties, inside = _body(builder, ast, builder._with_ctes(ast, scope))
    folding = Folding(builder)
    value = folding.folded(builder.resolved(ast.selects[0].unalias(), inside))
    if has_subquery(value):
        raise unfaithful("a subquery in a scalar subquery's list")
    if not ties:
        one = Aggregate(child=inner, keys=(), aggregates=tuple(folding.aggregates))
        name = builder.helper("value")
        right = Project(child=one, items=((name, value),))
        return Join(left=node, right=right, kind=JoinKind.INNER, condition=None), column(name)
    return _correlated(builder, node, inner, ties, folding, value)


def _is_one_row(ast: exp.Select) -> bool:
    clauses = ("group", "having", "qualify", "limit", "offset", "distinct", "windows", "pivots")
    return (
        len(ast.selects) == 1
        and not any(ast.args.get(clause) for clause in clauses)
        and folds_rows(ast.selects[0])
    )


def _correlated(
    builder: Builder,
    node: Node,
    inner: Node,
    ties: list[Expression],
    folding: Folding,
    value: Expression,
) -> tuple[Node, Expression]:
    empty = _over_nothing(value, folding)
    pairs = [_equality(tie, inner) for tie in ties]
    if all(pair is not None and same_type(inner, pair[0], node, pair[1]) for pair in pairs):
        keys = tuple((builder.helper("key"), pair[0]) for pair in pairs if pair)
        on: list[Expression] = [
            exp.EQ(this=column(name), expression=pair[1])
            for (name, _), pair in zip(keys, pairs, strict=True)
            if pair
        ]
        child = inner
    else:
        child, keys, on = _domain(builder, node, inner, ties)
    grouped = Aggregate(child=child, keys=keys, aggregates=tuple(folding.aggregates))
    name, there = builder.helper("value"), builder.helper("there")
    items: list[Named] = [(key, column(key)) for key, _ in keys]
    right = Project(child=grouped, items=(*items, (name, value), (there, exp.true())))
    joined = Join(left=node, right=right, kind=JoinKind.LEFT, condition=conjunction(on))
    absent = exp.Is(this=column(there), expression=exp.null())
    answer = exp.Case(ifs=[exp.If(this=absent, true=empty)], default=column(name))
    return joined, answer


def _equality(tie: Expression, inner: Node) -> tuple[Expression, Expression] | None:
    """(inside, outside) of `inside = outside`."""
    if not isinstance(tie, exp.EQ):
        return None
    own = set(inner.columns)
    for inside, outside in ((tie.left, tie.right), (tie.right, tie.left)):
        within = mentioned(inside)
        if within and within <= own and not mentioned(outside) & own:
            return inside, outside
    return None


def _domain(
    builder: Builder, node: Node, inner: Node, ties: list[Expression]
) -> tuple[Node, tuple[Named, ...], list[Expression]]:
    """Any correlation: join the inner rows with the distinct outer values that ask for them."""
    own = set(inner.columns)
    asked = sorted({name for tie in ties for name in mentioned(tie)} - own)
    if not set(asked) <= set(node.columns):
        raise unfaithful("a subquery that reads two levels up")
    names = {old: builder.helper("key") for old in asked}
    values = Distinct(
        child=Project(child=node, items=tuple((names[old], column(old)) for old in asked))
    )

    def renamed(found: Expression) -> Expression | None:
        if isinstance(found, exp.Column) and found.name in names:
            return column(names[found.name])
        return None

    condition = conjunction([rewritten(tie, renamed) for tie in ties])
    child = Join(left=values, right=inner, kind=JoinKind.INNER, condition=condition)
    keys = tuple((builder.helper("key"), column(names[old])) for old in asked)
    on: list[Expression] = [
        exp.NullSafeEQ(this=column(key), expression=column(old))
        for (key, _), old in zip(keys, asked, strict=True)
    ]
    return child, keys, on


COUNTS = (exp.Count, exp.ApproxDistinct)
NULLS = (exp.Sum, exp.Min, exp.Max, exp.Avg, exp.Stddev, exp.StddevSamp, exp.StddevPop,
         exp.Variance, exp.VariancePop)  # fmt: skip


def _over_nothing(value: Expression, folding: Folding) -> Expression:
    """What the subquery's expression gives when no inner row is tied to the outer one."""
    known, on_spark = dict(folding.aggregates), folding.builder.dialect == "spark"

    def replace(found: Expression) -> Expression | None:
        if not isinstance(found, exp.Column) or found.name not in known:
            return None
        aggregate = known[found.name]
        bare = aggregate.this if isinstance(aggregate, exp.Filter) else aggregate
        if isinstance(bare, COUNTS) or (isinstance(bare, exp.CountIf) and on_spark):
            return exp.Literal.number(0)
        if isinstance(bare, exp.CountIf):
            return exp.null()  # so it is on DuckDB
        if isinstance(bare, NULLS):
            return exp.null()
        raise NotIncremental(
            Reason.SQL_NOT_FAITHFUL, f"{functions.function_name(bare)} in a correlated subquery"
        )

    return rewritten(value, replace)
