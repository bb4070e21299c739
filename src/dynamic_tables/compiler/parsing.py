"""Text to sqlglot's tree, with plain functions as they are written.

sqlglot knows some 700 functions and prints them its own way: `date_trunc('day', t)` with 'DAY',
`instr(a, b)` as LOCATE(b, a). That helps to translate, but we do not translate: an engine must find
its own query in what is printed. So only those functions are parsed that the compiler must
understand; all others stay a name with arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark

from dynamic_tables.compiler import functions

Builder = Callable[..., exp.Expr]
BASES: dict[str, type[Dialect]] = {"spark": Spark, "duckdb": DuckDB}
UNDERSTOOD = (
    exp.AggFunc, exp.RowNumber, *functions.GENERATORS, *functions.CLOCK_KINDS,
    *functions.UNSTABLE_KINDS,
)  # fmt: skip
# Their first argument may be a word and no column: DATEADD(DAY, 1, d).
WITH_UNITS = ("DATEADD", "DATE_ADD", "DATEDIFF", "DATE_DIFF", "TIMESTAMPADD", "TIMESTAMPDIFF")
UNITS = frozenset({
    "microsecond", "millisecond", "second", "minute", "hour", "day", "dayofyear", "week", "month",
    "quarter", "year",
})  # fmt: skip
AS_WRITTEN = ("PERCENTILE_CONT", "PERCENTILE_DISC")  # printed as an approximation for Spark
MOST_ARGUMENTS = 4


def parse(query: str, dialect: str) -> exp.Expr:
    """One statement.

    >>> parse("SELECT date_trunc('day', t), instr(s, 'x') FROM r", "spark").sql(dialect="spark")
    "SELECT DATE_TRUNC('day', t), INSTR(s, 'x') FROM r"
    """
    return sqlglot.parse_one(query, dialect=_as_written(dialect))


def parse_all(text: str, dialect: str) -> list[exp.Expr]:
    """All statements of a text."""
    return [ast for ast in sqlglot.parse(text, dialect=_as_written(dialect)) if ast]


def _made(builder: Builder, dialect: Dialect) -> Iterator[exp.Expr]:
    """What a builder makes of some columns; how many it takes, it does not say."""
    for count in range(MOST_ARGUMENTS + 1):
        arguments = [exp.column(f"c{n}") for n in range(count)]
        for given in ((arguments,), (arguments, dialect)):
            try:
                yield builder(*given)
            except (TypeError, IndexError, ValueError):  # not with so many
                continue


def _with_unit(name: str) -> Builder:
    def build(arguments: Sequence[exp.Expr]) -> exp.Expr:
        first, *rest = arguments
        if isinstance(first, exp.Column) and len(rest) > 1 and first.name.lower() in UNITS:
            first = exp.Var(this=first.name)
        return exp.Anonymous(this=name, expressions=[first, *rest])

    return build


def _understood(dialect: type[Dialect]) -> dict[str, Any]:
    known = dialect.parser_class.FUNCTIONS
    made = {name: list(_made(builder, dialect())) for name, builder in known.items()}
    kept = {
        name: builder
        for name, builder in known.items()
        if any(isinstance(node, UNDERSTOOD) for node in made[name]) and name not in AS_WRITTEN
    }
    return kept | {name: _with_unit(name) for name in WITH_UNITS}


@cache
def _as_written(dialect: str) -> type[Dialect]:
    """A dialect whose parser leaves plain functions alone; made when it is needed first."""
    base = BASES[dialect]
    parser = base.parser_class
    ours = type(parser)("Parser", (parser,), {"FUNCTIONS": _understood(base)})
    made: Any = type(base)(f"{base.__name__}AsWritten", (base,), {"Parser": ours})
    return made
