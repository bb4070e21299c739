"""Whether a table stores more than its declared columns; decided once, when it is declared."""

from __future__ import annotations

from dataclasses import replace

from dynamic_tables.compiler.auxiliary import extended
from dynamic_tables.compiler.merge import Merging
from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.definition import Auxiliary, Column, Definition
from dynamic_tables.lake.base import Lake
from dynamic_tables.model import Strategy
from dynamic_tables.options import AuxiliaryColumns, RefreshMode
from dynamic_tables.refresh.decide import possible


def with_auxiliary(lake: Lake, definition: Definition) -> Definition:
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
