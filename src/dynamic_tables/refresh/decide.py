"""What to do with one table, and why. Pure, so that `plan` and `explain` show what `refresh`
does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynamic_tables.model import Action, Build, Definition, Pin, Strategy
from dynamic_tables.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a decision needs to know."""

    definition: Definition
    build: Build | None
    pins: Sequence[Pin]
    moved: frozenset[str]  # name keys of the sources whose rows changed since the build
    clock_moved: bool
    foreign_change: bool
    forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The action, the strategy, and the reason for it."""

    action: Action
    strategy: Strategy
    reason: Reason


def decide(facts: Facts) -> Decision:  # noqa: PLR0911  a list of rules
    """The first rule that applies; the order is from what must be to what may be."""
    if facts.build is None:
        return _full(Action.INITIALIZE, Reason.FIRST_LOAD)
    if facts.build.fingerprint != facts.definition.built_from:
        query = facts.build.fingerprint.partition("/")[0]
        if query != facts.definition.fingerprint:
            return _full(Action.REINITIALIZE, Reason.DEFINITION_CHANGED)
        return _full(Action.REFRESH, Reason.VIEW_CHANGED)
    if facts.forced:
        return _full(Action.REFRESH, Reason.FORCED)
    if facts.foreign_change:
        return _full(Action.REFRESH, Reason.FOREIGN_CHANGE)
    if _replaced(facts.build, facts.pins):
        return _full(Action.REFRESH, Reason.SOURCE_REPLACED)
    if facts.moved:
        return _full(Action.REFRESH, Reason.NOT_INCREMENTAL)
    if facts.clock_moved:
        return _full(Action.REFRESH, Reason.TIME_PASSED)
    return Decision(action=Action.REFRESH, strategy=Strategy.NO_DATA, reason=Reason.NOT_MOVED)


def _full(action: Action, reason: Reason) -> Decision:
    return Decision(action=action, strategy=Strategy.FULL, reason=reason)


def _replaced(build: Build, pins: Sequence[Pin]) -> bool:
    """A source is another Delta table than the one the rows were built from."""
    before = {pin.source_id for pin in build.pins}
    return any(pin.source_id not in before for pin in pins)
