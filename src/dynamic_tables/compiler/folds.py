"""Aggregates with an inverse: what a changed row adds to a stored value, or takes from it.

A fold knows its companions: other aggregates that must be stored beside it. SUM needs the number of
values, because a sum of none is NULL; AVG is their quotient.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlglot import exp

from dynamic_tables.compiler.functions import function_name
from dynamic_tables.compiler.tree import Expression

ALL = frozenset({"every", "bool_and"})
SOME = frozenset({"some", "bool_or"})
PLAIN_ARGS = frozenset({"this", "big_int"})  # of an aggregate over one value


class Kind(StrEnum):
    """How stored and new values become one."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"  # AND is the least of truth values
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One aggregate that can be kept up to date from its own stored value and the changes."""

    kind: Kind
    value: Expression | None  # None: every row counts
    condition: Expression | None  # FILTER (WHERE …)

    def argument(self) -> Expression | None:
        """The value where the condition holds, else NULL."""
        if self.condition is None or self.value is None:
            return self.value
        return exp.Case(ifs=[exp.If(this=self.condition.copy(), true=self.value.copy())])

    def companions(self) -> tuple[Expression, ...]:
        """The aggregates that must be stored beside it."""
        assert self.value is not None or self.kind is Kind.COUNT
        match self.kind:
            case Kind.SUM:
                return (self.number(),)
            case Kind.AVG:
                return (self.total(), self.number())
            case _:
                return ()

    def number(self) -> Expression:
        return self._filtered(exp.Count(this=_copy(self.value), big_int=True))

    def total(self) -> Expression:
        return self._filtered(exp.Sum(this=_copy(self.value)))

    def _filtered(self, aggregate: Expression) -> Expression:
        if self.condition is None:
            return aggregate
        return exp.Filter(this=aggregate, expression=exp.Where(this=self.condition.copy()))


def _copy(value: Expression | None) -> Expression:
    assert value is not None
    return value.copy()


def count_rows() -> Expression:
    """COUNT(*), which tells when a group is gone."""
    return exp.Count(this=exp.Star(), big_int=True)


def fold_of(aggregate: Expression, dialect: str) -> Fold | None:
    """What an aggregate is, if it has an inverse."""
    condition = None
    if isinstance(aggregate, exp.Filter):
        condition = aggregate.expression.this
        aggregate = aggregate.this
    if isinstance(aggregate, exp.CountIf):
        if dialect == "duckdb":
            return None  # over NULLs alone it is NULL, not 0
        both = [aggregate.this] + ([condition] if condition is not None else [])
        return Fold(kind=Kind.COUNT, value=None, condition=exp.and_(*both))
    kind = _kind(aggregate)
    value = aggregate.args.get("this")
    if isinstance(aggregate, exp.Anonymous):
        value = aggregate.expressions[0] if len(aggregate.expressions) == 1 else None
    elif any(given for name, given in aggregate.args.items() if name not in PLAIN_ARGS):
        return None
    if kind is None or not isinstance(value, exp.Expr) or isinstance(value, _MODIFIED):
        return None
    if kind is Kind.COUNT and isinstance(value, (exp.Star, exp.Literal)):
        return Fold(kind=kind, value=None, condition=condition)
    return Fold(kind=kind, value=value, condition=condition)


_MODIFIED = (exp.Distinct, exp.Order, exp.Limit, exp.HavingMax, exp.IgnoreNulls)
_KINDS: dict[type[exp.Expr], Kind] = {
    exp.Count: Kind.COUNT,
    exp.Sum: Kind.SUM,
    exp.Avg: Kind.AVG,
    exp.Min: Kind.MIN,
    exp.Max: Kind.MAX,
    exp.LogicalAnd: Kind.MIN,
    exp.LogicalOr: Kind.MAX,
}


def _kind(aggregate: Expression) -> Kind | None:
    known = _KINDS.get(type(aggregate))
    if known is not None:
        return known
    name = function_name(aggregate)
    if name in ALL:
        return Kind.MIN
    if name in SOME:
        return Kind.MAX
    return Kind.AVG if name == "mean" else None
