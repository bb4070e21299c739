"""Statements of many named parts, taken apart for engines that repeat them.

Spark puts the text of a WITH item wherever its name stands. Parts that name others twice, which
name others twice, make a plan of thousands of operators that Spark never gets through. So parts
that have grown and are named again are computed first, each under its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LARGE = 40  # relations of a part, all that it names included, from which it is computed by itself
_PART = re.compile(r"(?:^WITH |^\),\n)(_dt_\w+) AS \(\n", re.MULTILINE)
_NAMED = re.compile(r"\b(?:FROM|JOIN) (_dt_\w+)")


@dataclass(frozen=True, slots=True)
class Stage:
    """A statement that stands on the stages before it; the last one has no name."""

    name: str
    sql: str


def stages(sql: str) -> Iterator[Stage]:
    """A statement as it is, or in several stages if it would grow beyond measure.

    >>> [stage.name for stage in stages("SELECT 1")]
    ['']
    """
    *parts, (_, last) = _parts(sql)
    names = [name for _, text in [*parts, ("", last)] for name in _NAMED.findall(text)]
    sizes: dict[str, int] = {}
    waiting: list[tuple[str, str]] = []
    for name, text in parts:
        sizes[name] = 1 + sum(sizes.get(named, 1) for named in _NAMED.findall(text))
        if sizes[name] >= LARGE and names.count(name) > 1:
            yield Stage(name, _with(waiting, text))
            sizes[name] = 1
        else:
            waiting.append((name, text))
    yield Stage("", sql if len(waiting) == len(parts) else _with(waiting, last))


def _parts(sql: str) -> list[tuple[str, str]]:
    """The items of WITH by their names, and the statement itself at last."""
    _, *found = _PART.split(sql)
    if not found:
        return [("", sql)]
    *texts, rest = found[1::2]
    text, _, last = rest.partition("\n)\nSELECT ")
    bodies = [body.removesuffix("\n") for body in (*texts, text)]
    return [*zip(found[::2], bodies, strict=True), ("", f"SELECT {last}")]


def _with(parts: list[tuple[str, str]], sql: str) -> str:
    """A statement with the parts that it needs."""
    needed: list[str] = []
    for name, text in reversed(parts):
        if name in _NAMED.findall(sql) or any(name in _NAMED.findall(other) for other in needed):
            needed.insert(0, f"{name} AS (\n{text}\n)")
    listed = ",\n".join(needed)
    return f"WITH {listed}\n{sql}" if needed else sql
