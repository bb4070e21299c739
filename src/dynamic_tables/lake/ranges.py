"""Keys as a few ranges of literals: only literals let Delta skip files, and Parquet row groups.

A semi-join with a table of keys reads every file. An OR of ranges prunes exactly, but each range is
generated code: few of them, and only where they leave much out. Keys that are scattered between the
ends of a range are said one by one as well, in a list, which is no generated code: Delta skips no
file by it, but where row groups are in the order of the key, Parquet skips those between the keys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from dynamic_tables.names import literal

# Types whose values Python and Spark order alike; strings with a collation are not among them.
ORDERED_ALIKE = re.compile(r"tinyint|smallint|int|bigint|decimal.*|date|string")
RANGES_AT_MOST = 8
LISTED_AT_MOST = 200  # values in a list; Parquet compares every row group with each of them
SPARSE = 2  # several ranges are said where the span between the ends is so many times wider


@dataclass(frozen=True, slots=True)
class Spans:
    """Values that are too many to name: the ends of a few ranges that hold all of them, in
    order."""

    ends: tuple[tuple[Any, Any], ...]
    null: bool  # one of them is NULL


Values = Sequence[Any] | Spans


def condition(column: str, values: Values) -> str | None:
    """What all these values of a column fulfil, as SQL; None if no literals can say it.

    >>> condition("k", [7, 1, 2, None])
    '(k BETWEEN 1 AND 2 OR k BETWEEN 7 AND 7 OR k IS NULL)'
    >>> condition("k", ["b", "a"])
    "(k BETWEEN 'a' AND 'b') AND (k IN ('a', 'b'))"
    >>> condition("k", [1.5]), condition("k", ["a", "it's"]), condition("k", ["${a}"])
    (None, None, None)
    >>> condition("k", Spans(((1, 9), (70, 80)), null=True))
    '(k BETWEEN 1 AND 9 OR k BETWEEN 70 AND 80 OR k IS NULL)'
    """
    ordered = named(values)
    spans = values if isinstance(values, Spans) else spans_of(values)
    ends = (end for both in spans.ends for end in both)
    if not all(has_literal(value) for value in (*ordered, *ends)):
        return None
    parts = [f"{column} BETWEEN {literal_of(a)} AND {literal_of(b)}" for a, b in spans.ends]
    null = [f"{column} IS NULL"] if spans.null else []
    said = f"({' OR '.join([*parts, *null])})" if parts or null else None
    if not is_scattered(ordered, spans.ends):
        return said
    listed = f"{column} IN ({', '.join(map(literal_of, ordered))})"
    return f"{said} AND ({' OR '.join([listed, *null])})"


def named(values: Values) -> list[Any]:
    """The values in order, where they are few enough to be named."""
    known = () if isinstance(values, Spans) else values
    return sorted({value for value in known if value is not None})


def spans_of(values: Sequence[Any]) -> Spans:
    """What a few ranges tell of values."""
    return Spans(tuple(ranges(named(values))), null=None in values)


def is_scattered(ordered: Sequence[Any], between: Sequence[tuple[Any, Any]]) -> bool:
    """Whether the ranges hold other values, too, and a list of the wanted ones is short enough.

    >>> is_scattered([1, 2, 9], [(1, 2), (9, 9)]), is_scattered([1, 3], [(1, 3)])
    (False, True)
    """
    if not 1 < len(ordered) <= LISTED_AT_MOST:
        return False
    if isinstance(ordered[0], int):
        return sum(b - a + 1 for a, b in between) > len(ordered)
    return any(a != b for a, b in between)


def ranges(ordered: Sequence[Any]) -> list[tuple[Any, Any]]:
    """The ends of a few ranges that hold all values, cut at the widest gaps.

    >>> ranges([1, 2, 3, 100, 101])
    [(1, 3), (100, 101)]
    >>> ranges(range(1, 100, 2))
    [(1, 99)]
    """
    return fewer([(value, value) for value in ordered])


def fewer(spans: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The same of ranges, which are in order and apart from each other.

    >>> fewer([(1, 3), (4, 9), (1000, 1010), (1020, 1030)])
    [(1, 9), (1000, 1010), (1020, 1030)]
    """
    if not spans:
        return []
    (low, _), (_, high) = spans[0], spans[-1]
    if isinstance(low, str) or len(spans) == 1:
        return [(low, high)]  # strings have no distance
    nothing = low - low
    next_to = {int: 1, date: timedelta(days=1)}.get(type(low), nothing)
    apart = ((b[0] - a[1], n) for n, (a, b) in enumerate(pairwise(spans)))
    gaps = sorted((gap for gap in apart if gap[0] > next_to), reverse=True)
    cuts = sorted(n for _, n in gaps[: RANGES_AT_MOST - 1])
    starts, ends = [0, *(n + 1 for n in cuts)], [*cuts, len(spans) - 1]
    found = [(spans[a][0], spans[b][1]) for a, b in zip(starts, ends, strict=True)]
    covered = sum((b - a for a, b in found), nothing)
    return found if covered * SPARSE <= high - low else [(low, high)]


def has_literal(value: Any) -> bool:
    """Whether a literal means this value under all settings; others are left to the semi-join.

    Timestamps depend on time zones, doubles have NaN, and how a text with an escape, a quote or a
    `${variable}` is read depends on the session that the query was declared in.
    """
    if isinstance(value, str):
        return value.isprintable() and not any(sign in value for sign in "\\'$")
    exact = isinstance(value, (int, Decimal, date))
    return exact and not isinstance(value, (bool, datetime))


def literal_of(value: Any) -> str:
    """A value that has a literal, as SQL."""
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return format(value, "f") if isinstance(value, Decimal) else str(value)  # 1E+2 is a double
