"""Which output columns of a query did the user leave without a name?

Spark names `SELECT a + 1` by its text, `(a + 1)`. Such a name changes with white space and
versions, so it is refused.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from dynamic_tables.lake import jvm
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.references import CLOCK_WORDS

LISTS = {"Project": "projectList", "Aggregate": "aggregateExpressions"}


def unnamed_columns(spark: SparkSession, query: str) -> list[str]:
    """The text of each expression of the outermost select list that has no name."""
    node = jvm.parse_query(spark, query)
    while (name := jvm.class_name(node)) not in LISTS:
        below = list(jvm.items(node.children()))
        if not below or name == "SubqueryAlias":
            return []  # VALUES, TABLE t, a table function: their columns have names
        node = below[0]  # of a set operation, the first query gives the names
    found = []
    for expression in jvm.items(getattr(node, LISTS[name])()):
        kind = jvm.class_name(expression)
        if kind == "UnresolvedAlias":
            found += _text(expression.child(), query)
        elif kind == "UnresolvedAttribute":  # current_date is no column
            found += [word for word in _text(expression, query) if word.lower() in CLOCK_WORDS]
    return found


def _text(expression: Java, query: str) -> list[str]:
    if jvm.class_name(expression) in ("UnresolvedStar", "UnresolvedExtractValue"):
        return []  # `*` and `struct.field` bring names along
    start, stop = (
        jvm.option(i) for i in (expression.origin().startIndex(), expression.origin().stopIndex())
    )
    return [query[start : stop + 1] if start is not None and stop is not None else expression.sql()]
