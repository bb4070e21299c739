"""Which files may hold some values of a column, by the statistics that Delta's log has of them.

A file that is kept for nothing costs a little time, one that is left out wrongly costs rows: all
that is missing, odd, or of a type whose bounds writers round, keeps the file.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from dynamic_tables.lake.ranges import Spans, is_scattered, named, spans_of

PHYSICAL_NAME = "delta.columnMapping.physicalName"
SPARKS_OWN = "__"  # texts that are compared otherwise: of a fixed length, with a collation
NEARLY_ALL = 0.9  # of the values between the bounds of a file
CUT = "\ufffd"  # what is left of a character that was cut into


@dataclass(frozen=True, slots=True)
class Wanted:
    """Only rows that have one of these values in a column are looked for."""

    column: str
    values: tuple[Any, ...] | Spans  # None: rows that have none


@dataclass(frozen=True, slots=True)
class Sought:
    """Values to be compared with the bounds of a column."""

    name: str  # as statistics have it
    bound: Callable[[Any], Any]  # from statistics; ValueError: not to be relied on
    spans: Sequence[tuple[Any, Any]]  # in order: every value by itself, where they are named
    said: Spans  # what literals say
    is_listed: bool  # and every value by itself

    def may_be_in(self, stats: str | None) -> bool:
        """Whether a file may hold one of the values."""
        try:
            low, high, nulls = self._told(stats)
        except (ValueError, KeyError, TypeError):
            return True
        if self.said.null and nulls != 0:
            return True
        place = bisect_left(self.spans, low, key=lambda ends: ends[1])
        return low > high or (place < len(self.spans) and self.spans[place][0] <= high)

    def covers(self, stats: str | None) -> bool:
        """Whether the ranges that literals say hold nearly all that a file has; no if unsure.

        Where the values are listed as well, they may lie far apart in a file that is in order.
        """
        try:
            low, high, nulls = self._told(stats)
        except (ValueError, KeyError, TypeError):
            return False
        if self.is_listed or low > high or (nulls != 0 and not self.said.null):
            return False
        inside = [(max(a, low), min(b, high)) for a, b in self.said.ends if a <= high and b >= low]
        if isinstance(low, str):  # texts have no distance
            return (low, high) in inside
        return sum(_width(*ends) for ends in inside) >= NEARLY_ALL * _width(low, high)

    def _told(self, stats: str | None) -> tuple[Any, Any, Any]:
        """The bounds of a file, and how many rows have no value; None: nobody counted."""
        known = json.loads(stats or "")
        low, high = (self.bound(known[ends][self.name]) for ends in ("minValues", "maxValues"))
        counts = known.get("nullCount")
        return low, high, counts.get(self.name) if isinstance(counts, dict) else None


def _width(low: Any, high: Any) -> int:
    """How many values there are from one to another.

    >>> _width(3, 3), _width(date(2024, 2, 28), date(2024, 3, 1))
    (1, 3)
    """
    return high - low + 1 if isinstance(low, int) else (high - low).days + 1


def sought(wanted: Wanted, schema: str) -> Sought | None:
    """What to look for in files of a table with this schema, as JSON; None: nothing that helps."""
    fields = json.loads(schema)["fields"]
    found = [field for field in fields if field["name"].lower() == wanted.column.lower()]
    ordered = named(wanted.values)
    said = wanted.values if isinstance(wanted.values, Spans) else spans_of(wanted.values)
    ends = (end for both in said.ends for end in both)
    if len(found) != 1 or not isinstance(found[0]["type"], str):
        return None
    kind, bound = _KINDS.get(found[0]["type"], (None, _whole))
    about = found[0].get("metadata", {})
    if kind is None or not all(type(value) is kind for value in (*ordered, *ends)):
        return None
    if any(key.startswith(SPARKS_OWN) for key in about):
        return None
    name = about.get(PHYSICAL_NAME, found[0]["name"])
    each = [(value, value) for value in ordered]
    return Sought(name, bound, each or said.ends, said, is_scattered(ordered, said.ends))


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(value)
    return value


def _day(value: Any) -> date:
    return date.fromisoformat(value)


def _text(value: Any) -> str:
    """Long ones are cut: least ones become lesser, greatest ones get a great character behind."""
    if not isinstance(value, str) or any("\ud800" <= sign <= "\udfff" for sign in value):
        raise ValueError(value)
    if CUT in value:
        raise ValueError(value)
    return value


# By Spark's names. Decimals are not among them: some writers round their bounds.
_KINDS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (int, _whole)),
    "date": (date, _day),
    "string": (str, _text),
}


def kept(stats: Sequence[str | None], wanted: Sequence[Wanted], schema: str) -> list[int]:
    """Which of some files, by their places, may hold rows that are looked for."""
    found = [one for one in (sought(each, schema) for each in wanted) if one is not None]
    return [n for n, told in enumerate(stats) if all(one.may_be_in(told) for one in found)]
