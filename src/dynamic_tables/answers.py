"""What `explain` and `verify` answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dynamic_tables.compiler.plan import Possible
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.compiler.show import shown
from dynamic_tables.definition import Definition
from dynamic_tables.lake.base import Difference, Lake
from dynamic_tables.lake.plans import source_names
from dynamic_tables.model import Build, Cut, Strategy
from dynamic_tables.names import TableName
from dynamic_tables.options import RefreshMode
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.decide import INCREMENTAL, possible
from dynamic_tables.refresh.preview import Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a query or a table is, and how it is kept up to date."""

    table: TableName | None
    query: str
    columns: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]
    strategies: Mapping[Strategy, Reason | None]  # None: possible
    key: tuple[str, ...]  # the output columns by which affected rows are found
    tree: tuple[str, ...]  # the operators, one a line; empty if there is no plan
    not_incremental: str | None  # what in the query stands in the way of a plan
    reads_clock: bool
    deterministic: bool
    location: str | None
    pinned_sql: str | None  # the text that the last refresh ran
    next_refresh: Planned | None = None  # what it would do, and what other ways would cost

    @property
    def possible(self) -> str:
        """The strategies that a refresh may take."""
        return self._named(None)

    @property
    def otherwise(self) -> str:
        """Those that REFRESH_MODE = FULL rules out, and nothing else does."""
        return self._named(Reason.DECLARED_FULL)

    def _named(self, wanted: Reason | None) -> str:
        return ", ".join(way.value for way, why in self.strategies.items() if why is wanted)

    def __str__(self) -> str:
        lines = [f"{self.table or 'the query'}: can be refreshed by {self.possible}"]
        if self.otherwise:
            lines.append(f"declared REFRESH_MODE = FULL; with AUTO also by {self.otherwise}")
        if self.not_incremental:
            lines.append(f"not incremental: {self.not_incremental}")
        elif others := [
            f"{way.value} ({why.value})"
            for way, why in self.strategies.items()
            if why not in (None, Reason.DECLARED_FULL)
        ]:
            lines.append(f"not by: {', '.join(others)}")
        if self.next_refresh:
            lines.append(f"next refresh of {self.next_refresh}")
        return "\n".join([*lines, *self.tree])

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
            "key": list(self.key),
            "tree": list(self.tree),
            "not_incremental": self.not_incremental,
            "reads_clock": self.reads_clock,
            "deterministic": self.deterministic,
            "location": self.location,
            "pinned_sql": self.pinned_sql,
            "next_refresh": self.next_refresh.as_json() if self.next_refresh else None,
        }


def explained(lake: Lake, definition: Definition, build: Build | None) -> Explanation:
    """A definition, loaded or not, or one that only a query was made into."""
    plan = lake.plan_of(definition)
    pinned = lake.pinned_sql(definition, build.pins, build.cut.instant) if build else None
    described = Explanation(
        table=definition.name if definition.location else None,
        query=definition.query,
        columns=tuple((column.name, column.type) for column in definition.columns),
        sources=tuple(str(source.name) for source in definition.sources),
        strategies=_as_declared(possible(plan, definition), definition.options.refresh_mode),
        key=(),
        tree=(),
        not_incremental=None,
        reads_clock=definition.reads_clock,
        deterministic=definition.deterministic,
        location=definition.location or None,
        pinned_sql=pinned,
    )
    if isinstance(plan, NotIncremental):
        return replace(described, not_incremental=plan.what)
    names = {name: str(source.name) for name, source in source_names(definition).items()}
    return replace(
        described,
        key=plan.key_columns(),
        tree=tuple(shown(plan.node, names, dialect=plan.dialect)),
    )


def _as_declared(found: Possible, mode: RefreshMode) -> Possible:
    """REFRESH_MODE = FULL takes none of the strategies that go by changes."""
    if mode is not RefreshMode.FULL:
        return found
    return {
        way: Reason.DECLARED_FULL if why is None and way in INCREMENTAL else why
        for way, why in found.items()
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

    def __str__(self) -> str:
        place = f"{self.table}@{self.version}"
        if self.ok:
            return f"✓ {place} equals its query"
        missing, unexpected = self.difference.missing, self.difference.unexpected
        return f"✗ {place} differs from its query: {missing} rows missing, {unexpected} unexpected"

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
    if definition.auxiliary is None:
        return f"table with exactly the declared columns, at {definition.location}"
    hidden = ", ".join(column.name for column in definition.auxiliary.columns)
    return f"view over {definition.stored_name} (hidden: {hidden}), at {definition.location}"
