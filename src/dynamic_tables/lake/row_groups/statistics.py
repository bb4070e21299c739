"""Delta's statistics of a file, from the Arrow data that is written to it.

Delta's own collector reads footers, which have no bounds for floats, decimals and timestamps. A
bound that is left out costs reading; one that is wrong hides rows. So whatever JSON cannot say
exactly (NaN, infinities, half a character, years beyond 9999) is left out, and what it says only
roughly is rounded outwards.

Runs in executors: it imports nothing but Arrow and the standard library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow.compute import StructFieldOptions, call_function

LETTERS_AT_MOST = 32  # of a text in a bound, as Delta has it
HIGHEST_LETTER = "\U0010ffff"
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  microseconds are added to it, no zone is involved
EARLIEST = (datetime(1, 1, 1) - EPOCH) // timedelta(microseconds=1)  # noqa: DTZ001
LATEST = (datetime(9999, 12, 31) - EPOCH) // timedelta(microseconds=1)  # noqa: DTZ001
FIRST_DAY, LAST_DAY = date(1, 1, 1).toordinal(), date(9999, 12, 31).toordinal()
EPOCH_DAY = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column, or a field of a struct, that has statistics."""

    path: tuple[str, ...]  # physical names
    bounded: bool  # False: only NULLs are counted


class Statistics:
    """Statistics of one file, row group by row group."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._columns = [_Column(leaf) for leaf in leaves]
        self.rows = 0

    def add(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        for column in self._columns:
            column.add(table)

    def as_json(self) -> str:
        """As the log has it."""
        least, greatest, nulls = {}, {}, {}
        for column in self._columns:
            _put(nulls, column.leaf.path, column.nulls)
            if (bound := column.least()) is not None:
                _put(least, column.leaf.path, bound)
            if (bound := column.greatest()) is not None:
                _put(greatest, column.leaf.path, bound)
        return _text(
            {
                "numRecords": self.rows,
                "minValues": least,
                "maxValues": greatest,
                "nullCount": nulls,
                "tightBounds": True,
            }
        )


class _Column:
    """What is known of one column so far."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.nulls = 0
        self._type: pa.DataType | None = None
        self._ends: list[Any] = []  # the least and the greatest value
        self._has_nan = False

    def add(self, table: pa.Table) -> None:
        values = _at(table, self.leaf.path)
        self.nulls += values.null_count
        if not self.leaf.bounded or values.null_count == len(values):
            return
        self._type = values.type
        if pa.types.is_floating(values.type):
            self._has_nan = self._has_nan or _has_nan(values)
        ends = call_function("min_max", [_comparable(values)])
        known = [*self._ends, ends["min"].as_py(), ends["max"].as_py()]
        known = [end for end in known if not (isinstance(end, float) and math.isnan(end))]
        self._ends = [min(known), max(known)] if known else []

    def least(self) -> Any:
        """The least value, or something less; None if that cannot be said."""
        return self._said(self._ends[0], up=False) if self._ends else None

    def greatest(self) -> Any:
        """NaN is greater than all numbers, and JSON has none."""
        return self._said(self._ends[1], up=True) if self._ends and not self._has_nan else None

    def _said(self, value: Any, *, up: bool) -> Any:
        kind = self._type
        assert kind is not None
        if isinstance(value, float):
            return _number(value, up=up)
        if pa.types.is_date(kind):
            day = value + EPOCH_DAY
            known = FIRST_DAY <= day <= LAST_DAY
            return date.fromordinal(day).isoformat() if known else None
        if pa.types.is_timestamp(kind):
            return _instant(value, zoned=kind.tz is not None, up=up)
        return _words(value, up=up) if isinstance(value, bytes) else value


def _at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    values = table.column(path[0])
    if len(path) == 1:
        return values
    return call_function("struct_field", [values], StructFieldOptions(list(path[1:])))


def _has_nan(values: pa.ChunkedArray) -> bool:
    return bool(call_function("any", [call_function("is_nan", [values])]).as_py())


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as Spark orders them, and as Python can hold them whatever they are."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    if pa.types.is_string(values.type):
        return values.cast(pa.binary())
    if pa.types.is_large_string(values.type):
        return values.cast(pa.large_binary())
    return values


def _number(value: float, *, up: bool) -> float | None:
    """A zero stands for both of them: some readers take -0.0 for less than 0.0.

    >>> _number(0.0, up=False), _number(-0.0, up=True)
    (-0.0, 0.0)
    """
    if value == 0:
        return 0.0 if up else -0.0
    return value if math.isfinite(value) else None


def _instant(microseconds: int, *, zoned: bool, up: bool) -> str | None:
    """To the millisecond, as Delta has it, and outwards: not all readers know that it is rounded.

    >>> _instant(1_500, zoned=True, up=False), _instant(1_500, zoned=True, up=True)
    ('1970-01-01T00:00:00.001Z', '1970-01-01T00:00:00.002Z')
    """
    rounded = (-(-microseconds // 1000) if up else microseconds // 1000) * 1000
    if not EARLIEST <= rounded <= LATEST:
        return None
    text = (EPOCH + timedelta(microseconds=rounded)).isoformat(timespec="milliseconds")
    return f"{text}Z" if zoned else text


def _words(value: bytes, *, up: bool) -> str | None:
    """The beginning of a text; of a greatest one something that is not less.

    >>> _words(b"a" * 40, up=False) == "a" * 32, _words(b"a" * 40, up=True)[32:] == HIGHEST_LETTER
    (True, True)
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if len(text) <= LETTERS_AT_MOST:
        return text
    if not up:
        return text[:LETTERS_AT_MOST]
    if text[LETTERS_AT_MOST] == HIGHEST_LETTER:
        return None
    return text[:LETTERS_AT_MOST] + HIGHEST_LETTER


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _text(value: Any) -> str:
    """JSON in which decimals keep their digits.

    >>> _text({"a": Decimal("0.10"), "b": [None]})
    '{"a":0.10,"b":[null]}'
    """
    if isinstance(value, Mapping):
        return f"{{{_joined(f'{json.dumps(k)}:{_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{_joined(map(_text, value))}]"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)


def _joined(parts: Iterable[str]) -> str:
    return ",".join(parts)
