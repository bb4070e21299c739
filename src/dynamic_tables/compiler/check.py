"""What every finished tree must keep to; one pass, so that no clause can be forgotten."""

from __future__ import annotations

from sqlglot import exp

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.refused import NotIncremental, unfaithful
from dynamic_tables.compiler.tree import (
    Constant,
    Expression,
    Filter,
    Node,
    expressions,
    has_subquery,
    unknown_columns,
    walk,
)
from dynamic_tables.reasons import Reason

MOST_OPERATORS = 400  # the SQL of a delta grows with the square of the tree


def check_tree(tree: Node, *, dialect: str) -> None:
    """Refuse a tree whose expressions are not functions of the rows that they read."""
    if unknown := unknown_columns(tree):
        raise unfaithful(f"{', '.join(sorted(unknown))} is read from further out")
    for count, node in enumerate(walk(tree)):
        if count >= MOST_OPERATORS:
            raise unfaithful("a query of so many operators")
        if len(set(node.columns)) < len(node.columns):
            raise unfaithful("two columns of one name")
        found = [expression for expression, _ in expressions(node)]
        found += [node.query] if isinstance(node, Constant) else []
        for expression in found:
            _check(expression, timed=isinstance(node, Filter), dialect=dialect)


def _check(expression: Expression, *, timed: bool, dialect: str) -> None:
    functions.check_stable(expression)
    if not timed and functions.reads_clock(expression):
        raise NotIncremental(Reason.TIME_IN_OUTPUT, "the time decides more than a filter")
    if has_subquery(expression) and not isinstance(expression, exp.Query):
        raise unfaithful("a subquery in this place")
    for node in expression.walk():
        if isinstance(node, exp.Star) and not isinstance(node.parent, (exp.Count, exp.Select)):
            raise unfaithful("* inside a function")
        if isinstance(node, (exp.Columns, exp.TableColumn)):
            raise unfaithful(f"{node.sql()} as a value")
        if dialect == "spark" and isinstance(node, exp.Any):
            raise unfaithful("any(…), which is bool_or(…)")
        if dialect == "duckdb" and functions.function_name(node) in functions.NAMES_FIELDS:
            raise unfaithful("a struct whose fields are named after columns")
