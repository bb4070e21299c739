"""Whether a table stores more than its declared columns; decided once, when it is declared."""

from __future__ import annotations

from dataclasses import replace

from dynamic_tables.compiler.auxiliary import extended
from dynamic_tables.compiler.merge import Merging
from dynamic_tables.compiler.partials import Partials
from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.definition import Auxiliary, Column, Definition, InParts
from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake.base import Lake
from dynamic_tables.model import Strategy
from dynamic_tables.names import PARTIALS
from dynamic_tables.options import AuxiliaryColumns, RefreshMode, Storage
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.decide import possible


def with_auxiliary(lake: Lake, definition: Definition) -> Definition:
    """The definition with what makes `merge` possible, or `fold` if its STORAGE asks for it."""
    found = _with_columns(lake, definition)
    wanted = definition.options.storage is Storage.MERGE_ON_READ
    return in_parts(lake, found) if wanted else found


def _with_columns(lake: Lake, definition: Definition) -> Definition:
    """The definition with auxiliary columns, if they make `merge` possible."""
    options = definition.options
    unwanted = options.auxiliary_columns is AuxiliaryColumns.NONE
    if unwanted or options.refresh_mode is RefreshMode.FULL or not definition.deterministic:
        return definition
    plan = lake.plan_of(definition)
    if not isinstance(plan, DeltaPlan) or plan.monotone or isinstance(plan.merging, Merging):
        return definition
    more = extended(definition.query, plan.dialect)
    if more is None:
        return definition
    untyped = tuple(Column(name=name, type="") for name in more.hidden)
    candidate = replace(definition, auxiliary=Auxiliary(query=more.query, columns=untyped))
    if not isinstance(lake.plan_of(candidate), DeltaPlan):
        return definition
    found = lake.query_columns(candidate)
    declared = len(definition.columns)
    if found[:declared] != definition.columns:
        return definition
    typed = replace(candidate, auxiliary=Auxiliary(query=more.query, columns=found[declared:]))
    can_merge = possible(lake.plan_of(typed), typed)[Strategy.MERGE] is None
    return typed if can_merge else definition


def in_parts(lake: Lake, definition: Definition) -> Definition:
    """STORAGE = MERGE_ON_READ: the same rows, stored in parts; refused where they have none."""
    plan = lake.plan_of(definition)
    if isinstance(plan, NotIncremental):
        raise _has_no_parts(definition, plan.reason)
    if isinstance(plan.merging, Reason):
        raise _has_no_parts(definition, plan.merging)
    partials = Partials(plan.merging)
    why = partials.reason_against(definition.types)
    if why is not None:
        raise _has_no_parts(definition, why)
    fold = InParts(fold=plan.folded(PARTIALS, definition.types), keys=partials.keys)
    kept = definition.auxiliary or Auxiliary(query=definition.query, columns=())
    return replace(definition, auxiliary=replace(kept, in_parts=fold))


def _has_no_parts(definition: Definition, why: Reason) -> InvalidInput:
    return InvalidInput(
        "STORAGE = MERGE_ON_READ is for a GROUP BY whose aggregates can be added up (COUNT, SUM, "
        "MIN, MAX, AVG of numbers that are no decimals), and arithmetic over them; "
        f"this query: {why.value}",
        reason=Reason.CONTRADICTION,
        about=str(definition.name),
        hint="STORAGE = IN_PLACE is for every query",
    )
