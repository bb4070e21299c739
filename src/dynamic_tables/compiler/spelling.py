"""The ways in which sqlglot's tree of a query can be printed.

sqlglot keeps `x IS NOT NULL` as `NOT x IS NULL`, `max_by` as `arg_max`, `DATE '2024-01-01'` as a
CAST and prints `FROM a, b` as a CROSS JOIN. That is the same, but an engine may plan it otherwise:
a query counts as understood if either print is planned as its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from dynamic_tables.compiler.parsing import parse

# Literals whose CAST means the same; words such as DATE 'today' do not, and 1.5BD has more digits.
_TYPED = re.compile(r"\b(?P<kind>DATE|TIMESTAMP)\s*'(?P<value>\d[\d :.T-]*)'", re.IGNORECASE)
_SUFFIXED = re.compile(r"\b(?P<value>\d+(?:\.\d+)?)(?P<kind>[LSYDF])\b", re.IGNORECASE)
SUFFIXES = {"L": "BIGINT", "S": "SMALLINT", "Y": "TINYINT", "D": "DOUBLE", "F": "FLOAT"}
SYNONYMS = {
    exp.ArgMax: "max_by",
    exp.ArgMin: "min_by",
    exp.ArrayAgg: "list",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
}


def prints(query: str, dialect: str) -> Iterator[str]:
    """A query as sqlglot prints it, and closer to how it was written.

    >>> list(prints("SELECT max_by(a, b) FROM r WHERE a IS NOT NULL", "duckdb"))[1]
    'SELECT MAX_BY(a, b) FROM r WHERE a IS NOT NULL'
    >>> list(prints("SELECT a FROM r, s", "spark"))
    ['SELECT a FROM r CROSS JOIN s', 'SELECT a FROM r INNER JOIN s']
    >>> list(prints("SELECT a FROM r WHERE d > date '2024-01-01'", "spark"))[1]
    "SELECT a FROM r WHERE d > date '2024-01-01'"
    """
    tree = parse(query, dialect)
    yield printed(tree, dialect)
    called = {name for name in SYNONYMS.values() if re.search(rf"\b{name}\s*\(", query, re.I)}
    for node in list(tree.find_all(exp.Not, *SYNONYMS)):
        name = SYNONYMS.get(type(node))
        if isinstance(node, exp.Not) and isinstance(node.this, exp.Is):
            inner = node.this
            node.replace(exp.Is(this=inner.this, expression=exp.Not(this=inner.expression)))
        elif name in called:
            given = [value for value in (node.this, node.args.get("expression")) if value]
            node.replace(exp.Anonymous(this=name.upper(), expressions=given))
    typed = _typed_literals(query)
    for cast in list(tree.find_all(exp.Cast)) if typed else ():
        literal = (cast.to.sql(dialect=dialect), cast.this.name)
        if isinstance(cast.this, exp.Literal) and literal in typed:
            cast.replace(exp.Var(this=typed[literal]))
    for join in tree.find_all(exp.Join):
        if dialect == "spark" and join.kind == "CROSS":  # FROM a, b is an inner join for Spark
            join.set("kind", "INNER")
        if dialect == "duckdb" and isinstance(join.this, exp.Unnest) and not join.args.get("on"):
            join.set("kind", join.kind or "CROSS")  # FROM a, unnest(…), printed JOIN … ON TRUE
    yield printed(tree, dialect)


def _typed_literals(query: str) -> dict[tuple[str, str], str]:
    """How the literals are spelled that sqlglot prints as a CAST, by their type and value."""
    dates = {(m["kind"].upper(), m["value"]): m[0] for m in _TYPED.finditer(query)}
    numbers = {(SUFFIXES[m["kind"].upper()], m["value"]): m[0] for m in _SUFFIXED.finditer(query)}
    return dates | numbers


def printed(tree: exp.Expr, dialect: str) -> str:
    """A query as sqlglot prints it, every WITH where it stands.

    For Spark, sqlglot moves a WITH of a subquery to the top, where it may hide a table or another
    one; not so in parentheses.

    >>> query = "SELECT a FROM (WITH x AS (SELECT 1 AS a) SELECT a FROM x) AS q"
    >>> printed(parse(query, "spark"), "spark") == query
    True
    """
    return exp.Paren(this=tree.copy()).sql(dialect=dialect)[1:-1]
