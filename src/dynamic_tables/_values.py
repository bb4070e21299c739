"""Values of options in any spelling -> Python values. Every function raises ValueError otherwise.

Python gives real types, the command line gives texts, statements give the text of a token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

from dynamic_tables.errors import InvalidInput
from dynamic_tables.names import split_name

MIN_DURATION_S = 1.0  # a refresh takes about as long: shorter promises cannot be kept
MAX_DURATION_S = 3650 * 86_400.0  # ten years; longer is a slip of the pen
MAX_INTEGER = 2**63 - 1  # Spark's and the store's long

_UNITS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}  # in seconds
_DURATION_PART = r"([0-9]+(?:\.[0-9]+)?)\s+(second|minute|hour|day|week)s?"
_DURATION = re.compile(rf"{_DURATION_PART}(?:\s+{_DURATION_PART})*", re.IGNORECASE)
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COLUMN_ITEM = re.compile(r"(?:`[^`]*+`|[^`,])*+")  # up to a comma that is not inside back-ticks


def duration(raw: object) -> float:
    """Seconds of a duration.

    >>> duration("1 hour 30 minutes")
    5400.0
    """
    if isinstance(raw, timedelta):
        return seconds(raw.total_seconds())
    if not isinstance(raw, str) or not _DURATION.fullmatch(raw.strip()):
        raise ValueError(raw)
    found = re.findall(_DURATION_PART, raw, re.IGNORECASE)
    parts = [(Decimal(number), unit.lower()) for number, unit in found]
    if len({unit for _, unit in parts}) < len(parts) or not all(number for number, _ in parts):
        raise ValueError(raw)
    return seconds(float(sum(number * _UNITS[unit] for number, unit in parts)))


def seconds(number: float) -> float:
    """A number of seconds that can be promised."""
    if isinstance(number, bool) or not MIN_DURATION_S <= number <= MAX_DURATION_S:
        raise ValueError(number)
    return float(number)


def duration_text(number: float) -> str:
    """Seconds as one writes a duration.

    >>> duration_text(5400.0)
    '1 hour 30 minutes'
    """
    parts, rest = [], number
    for unit, size in _UNITS.items():
        amount = rest if unit == "second" else rest // size
        rest -= amount * size
        if amount:
            digits = f"{amount:.6f}".rstrip("0").rstrip(".")
            parts.append(f"{digits} {unit}" if amount == 1 else f"{digits} {unit}s")
    return " ".join(parts)


def switch(raw: object) -> bool:
    """True or false, also as words."""
    if isinstance(raw, str | bool) and (word := str(raw).strip().lower()) in {"true", "false"}:
        return word == "true"
    raise ValueError(raw)


def share(raw: object) -> float:
    """A number x with 0 < x <= 1."""
    if isinstance(raw, str) and _NUMBER.fullmatch(raw.strip()):
        raw = float(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 < raw <= 1:
        raise ValueError(raw)
    return float(raw)


def count(raw: object) -> int:
    """A positive whole number."""
    if isinstance(raw, str) and re.fullmatch(r"[0-9]{1,19}", raw.strip()):
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int) or not 1 <= raw <= MAX_INTEGER:
        raise ValueError(raw)
    return raw


def columns(raw: object) -> tuple[str, ...]:
    """A list holds names as they are; a text is split at commas, with back-ticks as in SQL.

    >>> columns("a, `odd, name`")
    ('a', 'odd, name')
    """
    found = _split(raw) if isinstance(raw, str) else raw
    if not isinstance(found, list | tuple):
        raise ValueError(raw)  # noqa: TRY004  one error for every bad value
    if not all(isinstance(column, str) and column for column in found):
        raise ValueError(raw)
    return tuple(found)


def _split(text: str) -> list[str]:
    found, position = [], 0
    while True:
        item = _COLUMN_ITEM.match(text, position)
        assert item is not None, "the pattern matches the empty text"
        try:
            (column,) = split_name(item.group().strip())
        except InvalidInput as error:
            raise ValueError(text) from error
        found.append(column)
        if item.end() == len(text):
            return found
        if text[item.end()] != ",":
            raise ValueError(text)
        position = item.end() + 1


def column(raw: object) -> str:
    """One column name."""
    (found,) = columns(raw)
    return found


def text(raw: object) -> str:
    """A text, taken as it is."""
    if not isinstance(raw, str):
        raise ValueError(raw)  # noqa: TRY004  one error for every bad value
    return raw


def repeated(names: Sequence[str]) -> int | None:
    """The index of the first name that stands in the list already, compared without case."""
    lowered = [name.lower() for name in names]
    return next((i for i, name in enumerate(lowered) if name in lowered[:i]), None)
