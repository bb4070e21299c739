"""What `explain` and `verify` answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynamic_tables.lake.base import Difference
from dynamic_tables.model import Cut, Definition, Strategy
from dynamic_tables.names import TableName
from dynamic_tables.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a query or a table is, and how it is kept up to date."""

    table: TableName | None
    query: str
    columns: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]
    strategies: Mapping[Strategy, Reason | None]  # None: possible
    reads_clock: bool
    deterministic: bool
    location: str | None
    pinned_sql: str | None  # the text that the last refresh ran

    def as_json(self) -> dict[str, Any]:
        return {
            "table": str(self.table) if self.table else None,
            "query": self.query,
            "columns": dict(self.columns),
            "sources": list(self.sources),
            "strategies": {
                strategy.value: reason.value if reason else "possible"
                for strategy, reason in self.strategies.items()
            },
            "reads_clock": self.reads_clock,
            "deterministic": self.deterministic,
            "location": self.location,
            "pinned_sql": self.pinned_sql,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Whether a table equals its query at the recorded cut."""

    table: TableName
    cut: Cut
    version: int
    difference: Difference

    @property
    def ok(self) -> bool:
        return self.difference.none

    def as_json(self) -> dict[str, Any]:
        return {
            "table": str(self.table),
            "ok": self.ok,
            "version": self.version,
            "cut": self.cut.as_json(),
            "missing": self.difference.missing,
            "unexpected": self.difference.unexpected,
            "sample": [{k: str(v) for k, v in row.items()} for row in self.difference.sample],
        }


def stored_form(definition: Definition) -> str:
    """The physical form of a table, for people."""
    return f"Delta table with exactly the declared columns, at {definition.location}"
