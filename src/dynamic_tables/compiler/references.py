"""Where a query names tables or the clock, and how such places are rewritten.

The parser that will run the query says where its references are; we replace exactly those
characters and leave every other one as the user typed it. So what runs is the user's own text,
pinned, and no second SQL printer stands between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from dynamic_tables.names import quote


class Clock(StrEnum):
    """The functions that read the clock, by their names in Spark."""

    CURRENT_DATE = "current_date"
    CURDATE = "curdate"
    CURRENT_TIMESTAMP = "current_timestamp"
    NOW = "now"
    LOCALTIMESTAMP = "localtimestamp"
    UNIX_TIMESTAMP = "unix_timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A place in a text: characters `start` to `stop`, the latter excluded."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReference(Reference):
    """A place that names a table or a view (never a CTE)."""

    parts: tuple[str, ...]
    aliased: bool  # an alias (or TABLESAMPLE) follows: any relation may stand here, unnamed
    query: bool = False  # `TABLE t`: the place is a query, not a relation


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReference(Reference):
    """A place that reads the clock."""

    clock: Clock


R = TypeVar("R", bound=Reference)


def rewrite(text: str, references: Iterable[R], by: Callable[[R], str]) -> str:
    """Replace every reference by what `by` makes of it.

    >>> rewrite("SELECT * FROM a, b", [Reference(start=14, stop=15)], lambda _: "x VERSION AS OF 3")
    'SELECT * FROM x VERSION AS OF 3, b'
    """
    pieces, position = [], 0
    for reference in sorted(references, key=lambda item: item.start):
        pieces += [text[position : reference.start], by(reference)]
        position = reference.stop
    return "".join([*pieces, text[position:]])


def instant_sql(clock: Clock, instant: datetime) -> str:
    """The clock's value at the cut, as Spark SQL of the function's own type.

    >>> from datetime import UTC
    >>> instant_sql(Clock.NOW, datetime(2026, 1, 2, tzinfo=UTC))
    'timestamp_micros(1767312000000000L)'
    """
    micros = round(instant.timestamp() * 1_000_000)
    timestamp = f"timestamp_micros({micros}L)"
    match clock:
        case Clock.CURRENT_DATE | Clock.CURDATE:
            return f"CAST({timestamp} AS DATE)"
        case Clock.LOCALTIMESTAMP:
            return f"CAST({timestamp} AS TIMESTAMP_NTZ)"
        case Clock.UNIX_TIMESTAMP:
            return f"{micros // 1_000_000}L"
        case _:
            return timestamp


def pinned_relation(
    name_sql: str,
    version: int,
    *,
    reference: TableReference,
    only_columns: tuple[str, ...] | None = None,
    only_rows: str | None = None,
    in_parts: Callable[[str], str] | None = None,
    renamed: bool = False,
) -> str:
    """A table at a version; `only_columns` hides what was added since CREATE from `SELECT *`.

    `in_parts` makes rows of what is stored of them; `renamed`: the query knows the table by another
    name than this.

    >>> place = TableReference(start=0, stop=1, parts=("t",), aliased=False)
    >>> pinned_relation("`s`.`t`", 3, reference=place)
    '`s`.`t` VERSION AS OF 3'
    """
    relation = f"{name_sql} VERSION AS OF {version:d}"
    if in_parts is not None:
        relation = f"({in_parts(relation)})"
    if only_columns is None:
        return aliased_as(relation, reference) if renamed else as_query(relation, reference)
    columns = ", ".join(quote(column) for column in only_columns)
    where = f" WHERE {only_rows}" if only_rows else ""
    return aliased_as(f"(SELECT {columns} FROM {relation}{where})", reference)


def aliased_as(relation: str, reference: TableReference) -> str:
    """`relation` under the name that the query already uses for this place."""
    named = relation if reference.aliased else f"{relation} AS {quote(reference.parts[-1])}"
    return as_query(named, reference)


def as_query(relation: str, reference: TableReference) -> str:
    """`relation` as what stands at the place: `TABLE t` knows neither versions nor aliases.

    >>> place = TableReference(start=0, stop=7, parts=("t",), aliased=False, query=True)
    >>> as_query("t VERSION AS OF 3", place)
    'SELECT * FROM t VERSION AS OF 3'
    """
    return f"SELECT * FROM {relation}" if reference.query else relation
