"""Texts with gaps for what differs between refreshes: the leaves, and the table as it stands.

To write a plan as SQL costs more than to run it on a small lake, and what is written depends on
little: which sources changed, and whether the clock did. So each text is written once, over leaves
that are gaps, and filled in at every refresh.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sqlglot import exp

from dynamic_tables.compiler.emit import Leaves, Side, Within
from dynamic_tables.compiler.tree import Expression

_MARK = f"_gap_{secrets.token_hex(8)}"  # no text of a user can hold it
_GAP = re.compile(rf"{_MARK}\[(\w+) (\w*) (\w*)\]")
STORED = f"{_MARK}[stored  ]"


@dataclass(slots=True)
class Gaps:
    """See `emit.Leaves`."""

    _clocks: list[Expression] = field(default_factory=list)
    _nears: list[tuple[str, Side, Within, str]] = field(default_factory=list)
    _scans: list[tuple[str, Side, tuple[Within, ...]]] = field(default_factory=list)

    def rows(self, source: str, side: Side, within: tuple[Within, ...] = ()) -> str:
        self._scans.append((source, side, within))
        return f"{_MARK}[rows {len(self._scans) - 1} ]"

    def changes(self, source: str) -> str:
        return f"{_MARK}[changes {source} ]"

    def clock(self, function: Expression, side: Side) -> Expression:
        self._clocks.append(function)
        return exp.Var(this=f"{_MARK}[clock {len(self._clocks) - 1} {side.value}]")

    def near(self, source: str, side: Side, within: Within, column: str) -> str:
        self._nears.append((source, side, within, column))
        return f"{_MARK}[near {len(self._nears) - 1} ]"

    def filled(self, texts: Any, leaves: Leaves, *, dialect: str, stored: str = "") -> Any:
        """The same over these leaves: a text, a dataclass of texts, or None."""

        def fill(gap: re.Match[str]) -> str:
            kind, what, side = gap.groups()
            match kind:
                case "rows":
                    return leaves.rows(*self._scans[int(what)])
                case "changes":
                    return leaves.changes(what)
                case "near":
                    return leaves.near(*self._nears[int(what)])
                case "clock":
                    return leaves.clock(self._clocks[int(what)], Side(side)).sql(dialect=dialect)
                case _:
                    return stored

        def written(text: str) -> str:
            return _GAP.sub(fill, text)

        if texts is None:
            return texts
        if isinstance(texts, str):
            return written(texts)
        named = {item.name: getattr(texts, item.name) for item in fields(texts)}
        return replace(texts, **{n: written(t) for n, t in named.items() if isinstance(t, str)})
