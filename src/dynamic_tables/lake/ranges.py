"""Keys as a few ranges of literals: only literals let Delta skip files, and Parquet row groups.

A semi-join with a table of keys reads every file. An OR of ranges prunes exactly, but each range is
generated code: few of them, and only where they leave much out. Keys that are scattered between the
ends of a range are said one by one as well, in a list, which is no generated code: Delta skips no
file by it, but where row groups are in the order of the key, Parquet skips those between the keys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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


def condition(column: str, values: Sequence[Any]) -> str | None:
    """What all these values of a column fulfil, as SQL; None if no literals can say it.

    >>> condition("k", [7, 1, 2, None])
    '(k BETWEEN 1 AND 2 OR k BETWEEN 7 AND 7 OR k IS NULL)'
    >>> condition("k", ["b", "a"])
    "(k BETWEEN 'a' AND 'b') AND (k IN ('a', 'b'))"
    >>> condition("k", [1.5]), condition("k", ["a", "it's"]), condition("k", ["${a}"])
    (None, None, None)
    """
    known = {value for value in values if value is not None}
    if not all(has_literal(value) for value in known):
        return None
    ordered = sorted(known)
    between = ranges(ordered)
    parts = [f"{column} BETWEEN {literal_of(a)} AND {literal_of(b)}" for a, b in between]
    null = [f"{column} IS NULL"] if len(known) < len(set(values)) else []
    said = f"({' OR '.join([*parts, *null])})" if parts or null else None
    if not is_scattered(ordered, between):
        return said
    listed = f"{column} IN ({', '.join(map(literal_of, ordered))})"
    return f"{said} AND ({' OR '.join([listed, *null])})"


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
    if not ordered:
        return []
    whole = [(ordered[0], ordered[-1])]
    if isinstance(ordered[0], str) or len(ordered) == 1:
        return whole  # strings have no distance
    nothing = ordered[0] - ordered[0]
    next_to = {int: 1, date: timedelta(days=1)}.get(type(ordered[0]), nothing)
    gaps = [(b - a, n) for n, (a, b) in enumerate(pairwise(ordered)) if b - a > next_to]
    cuts = sorted(n for _, n in sorted(gaps, reverse=True)[: RANGES_AT_MOST - 1])
    starts, ends = [0, *(n + 1 for n in cuts)], [*cuts, len(ordered) - 1]
    found = [(ordered[a], ordered[b]) for a, b in zip(starts, ends, strict=True)]
    covered = sum((b - a for a, b in found), nothing)
    return found if covered * SPARSE <= ordered[-1] - ordered[0] else whole


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
