"""What the next refresh would do to each table, and why; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.lake.base import Lake, Sizes
from dynamic_tables.lake.pins import lost_columns, schema_changed
from dynamic_tables.lake.plans import read_columns, source_names
from dynamic_tables.model import Action, Estimate, Pin, Strategy, TableState
from dynamic_tables.names import TableName
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.context import Context
from dynamic_tables.refresh.costs import StorageCost, advice
from dynamic_tables.refresh.decide import Decision, Facts, decide, storages
from dynamic_tables.refresh.facts import Coming, gather
from dynamic_tables.refresh.retention import expiring
from dynamic_tables.refresh.run import GraphRefresh, Plan, Request
from dynamic_tables.refresh.table import REMEMBERED
from dynamic_tables.refresh.threshold import above_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One row of `plan`."""

    table: TableName
    action: Action
    strategy: Strategy | None
    reason: Reason
    detail: str  # which sources moved, or why the table is skipped
    warnings: tuple[str, ...] = ()
    storages: tuple[StorageCost, ...] = ()  # of an aggregate that could be stored either way
    estimates: tuple[Estimate, ...] = ()  # of the strategies that are possible
    rejected: Mapping[Strategy, Reason] = field(default_factory=dict)  # strategies, and why
    rows: int | None = None  # that changed in the sources: by their logs, or expected of parents

    def __str__(self) -> str:
        did = self.action.value + (f" {self.strategy.value}" if self.strategy else "")
        parts = [f"{self.table}: {did} ({self.reason.value})", self.detail]
        if self.estimate is not None:
            parts.append(f"{self.estimate.bytes:,} bytes, {self.estimate.seconds:.1f} s")
        said = (f"  {line}" for line in (*self.warnings, *self.storages))
        return "\n".join([", ".join(filter(None, parts)), *said])

    @property
    def estimate(self) -> Estimate | None:
        """Of the strategy that would be taken."""
        return next((e for e in self.estimates if e.strategy is self.strategy), None)

    def as_json(self) -> dict[str, Any]:
        expected = self.estimate
        return {
            "table": str(self.table),
            "action": self.action.value,
            "strategy": self.strategy.value if self.strategy else None,
            "reason": self.reason.value,
            "detail": self.detail,
            "warnings": list(self.warnings),
            "storages": [cost.as_json() for cost in self.storages],
            "rows": self.rows,
            "bytes": expected.bytes if expected else None,
            "seconds": round(expected.seconds, 2) if expected else None,
            "estimates": [estimate.as_json() for estimate in self.estimates],
            "rejected": {way.value: why.value for way, why in self.rejected.items()},
        }


def preview(context: Context, request: Request) -> list[Planned]:
    """One row a table, parents before children."""
    refresh = GraphRefresh(context, request)
    plan = refresh.plan()
    changing: dict[str, Coming] = {}
    return [
        _planned(context, refresh, plan, table_id, changing)
        for table_id in plan.graph.order(plan.cut.members)
    ]


def preview_of(context: Context, definition: Definition) -> Planned | None:
    """The row of one table, also where a refresh of it would be refused."""
    name = definition.name
    try:
        rows = preview(context, Request(table_ids=frozenset({definition.table_id})))
    except DynamicTablesError as error:
        return _skipped(name, error)
    return next((row for row in rows if row.table == name), None)


def _skipped(name: TableName, error: DynamicTablesError, *warnings: str) -> Planned:
    return Planned(
        table=name,
        action=Action.SKIP,
        strategy=None,
        reason=error.reason,
        detail=error.message,
        warnings=warnings,
    )


def _expires(context: Context, state: TableState) -> list[str]:
    """What is warned of, also if the table is skipped: it is not going to be read in time."""
    try:
        return list(expiring(context.lake, state, context.clock()))
    except DynamicTablesError:  # a source is gone: whoever decides will say so
        return []


def _planned(
    context: Context,
    refresh: GraphRefresh,
    plan: Plan,
    table_id: str,
    changing: dict[str, Coming],
) -> Planned:
    state = replace(plan.states[table_id], definition=plan.graph[table_id])  # views as they are now
    name = state.definition.name
    parents = {source.dynamic_id for source in state.definition.sources}
    barred, expires = plan.barred.get(table_id), _expires(context, state)
    if barred is not None:
        return _skipped(name, barred, *expires)
    try:
        decision, moved, facts = _decide(context, refresh, plan, state, changing)
        rests = decision.strategy is Strategy.NO_DATA
        by_changes = any(e.strategy is not Strategy.FULL for e in decision.estimates)
        sizes = facts.sizes() if decision.estimates else None
        found = storages(facts) if by_changes or rests else ()
    except DynamicTablesError as error:
        return _skipped(name, error, *expires)
    if decision.strategy is not Strategy.NO_DATA:
        changing[table_id] = _coming(decision, sizes)
    advised = advice(found, state.definition.options.storage)
    exact = sizes if parents.isdisjoint(changing) else None  # else the rows are only expected
    bound = above_threshold(facts, decision, exact)
    return Planned(
        table=name,
        action=decision.action,
        strategy=decision.strategy,
        reason=decision.reason,
        detail="changed: " + ", ".join(moved) if moved else "",
        estimates=decision.estimates,
        rejected=decision.rejected,
        warnings=tuple(filter(None, [*expires, bound, advised])),
        storages=found,
        rows=sizes.changed_rows if sizes else None,
    )


def _coming(decision: Decision, sizes: Sizes | None) -> Coming:
    """What a table is expected to pass on."""
    appends = decision.strategy is Strategy.APPEND
    expected = None if sizes is None else _sizes_coming(decision, sizes, appends=appends)
    return Coming(only_adds=appends, sizes=expected)


def _sizes_coming(decision: Decision, sizes: Sizes, *, appends: bool) -> Sizes | None:
    """As many rows as changed in its sources, but no more than it has, unless rows are appended;
    all of them if it is built anew."""
    rows = sizes.changed_rows if decision.action is Action.REFRESH else None
    if not sizes.stored_rows:  # none yet, or nobody knows
        return replace(sizes, unchanged_bytes=0) if rows else None
    share = rows / sizes.stored_rows if rows else 1.0
    share = share if appends else min(share, 1.0)
    return replace(
        sizes,
        changed_rows=round(share * sizes.stored_rows),
        changed_bytes=round(share * sizes.stored_bytes),
        unchanged_bytes=0,
    )


def _check_columns(lake: Lake, definition: Definition, pins: Sequence[Pin]) -> None:
    """A refresh would fail without a column that the query reads."""
    changed = lake.remaining_columns(definition, pins)
    lost = lost_columns(definition, changed)
    if not lost:
        return
    plan = lake.plan_of(definition)
    if isinstance(plan, DeltaPlan):
        read = [
            (source, column)
            for name, source in source_names(definition).items()
            for column in read_columns(definition, plan, name)
        ]
        lost = [gone for gone in lost if gone in read]
    if lost:
        raise schema_changed(definition, changed)


def _decide(
    context: Context,
    refresh: GraphRefresh,
    plan: Plan,
    state: TableState,
    changing: dict[str, Coming],
) -> tuple[Decision, list[str], Facts]:
    """A parent that is going to change counts as moved; for the version that is not known yet,
    the present one stands."""
    definition = state.definition
    coming = {
        source.name.key: changing[source.dynamic_id]
        for source in definition.sources
        if source.dynamic_id in changing
    }
    pins = tuple(
        refresh.pin(plan, source)
        for source in definition.sources
        if source.name.key not in coming or plan.states[source.dynamic_id or ""].build
    )
    cut = plan.cut.cut_of(plan.graph, plan.present, definition.table_id)
    facts = gather(
        context.lake,
        definition,
        build=state.build,
        standing=context.lake.standing(definition),
        cut=cut,
        pins=pins,
        history=lambda: context.store.history(definition.table_id, REMEMBERED),
        coming=coming,
    )
    if facts.moved:
        known = [pin for pin in pins if pin.name.key not in coming]
        _check_columns(context.lake, definition, known)
    names = {source.name.key: str(source.name) for source in definition.sources}
    return decide(facts), sorted(names[key] for key in facts.moved), facts
