"""What to do with one table, and why. Pure, so that `plan` and `explain` show what `refresh`
does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynamic_tables.compiler.joined import Joined
from dynamic_tables.compiler.merge import Merging
from dynamic_tables.compiler.partials import Partials
from dynamic_tables.compiler.plan import DeltaPlan, Possible
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.definition import Definition
from dynamic_tables.errors import InvalidInput, Refused
from dynamic_tables.lake.base import Moves, Sizes
from dynamic_tables.model import Action, Build, Estimate, Pin, RefreshRecord, Strategy
from dynamic_tables.options import RefreshMode
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh import costs

INCREMENTAL = (Strategy.APPEND, Strategy.FOLD, Strategy.MERGE, Strategy.KEYS, Strategy.ROWS)
COUNTS_KEYS = (Strategy.MERGE, Strategy.KEYS)  # and compares them with CARDINALITY_THRESHOLD
# Reasons for which even REFRESH_MODE = INCREMENTAL computes the whole query.
UNAVOIDABLE = frozenset({Reason.FIRST_LOAD, Reason.DEFINITION_CHANGED, Reason.FORCED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a decision needs to know."""

    definition: Definition
    build: Build | None
    pins: Sequence[Pin]
    moved: frozenset[str]  # name keys of the sources whose rows changed since the build
    clock_moved: bool
    foreign_change: bool
    moves: Moves | None  # None: there is no build to go on from
    plan: Callable[[], DeltaPlan | NotIncremental]  # made only when it is needed
    sizes: Callable[[], Sizes | None]  # looked up only when they are needed; None: not known
    rows_only_come: Callable[[], bool | None]  # asked where sizes are not known, which tell it
    history: Callable[[], Sequence[RefreshRecord]]
    forced: Strategy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The action, the strategy, and the reason for it."""

    action: Action
    strategy: Strategy
    reason: Reason
    estimates: tuple[Estimate, ...] = ()  # the strategy's and the others'
    changed: float | None = None  # rows of changes as a share of the stored ones, by the logs
    rejected: Mapping[Strategy, Reason] = field(default_factory=dict)  # the others, and why

    @property
    def estimate(self) -> Estimate | None:
        return next((e for e in self.estimates if e.strategy is self.strategy), None)

    def instead(self, strategy: Strategy, because: Reason) -> Decision:
        """Another strategy, for what was found on the way."""
        if strategy is self.strategy:
            return self
        others = {way: why for way, why in self.rejected.items() if way is not strategy}
        return replace(self, strategy=strategy, rejected=others | {self.strategy: because})


def decide(facts: Facts) -> Decision:
    """What to do; refuses what the table's mode or its limit rules out."""
    decision = _decide(facts)
    check(facts.definition, decision)
    return decision


def fallen_back(definition: Definition, decision: Decision, reason: Reason) -> Decision:
    """The whole query instead, for what was found while its changes were read; refuses likewise."""
    full = replace(decision.instead(Strategy.FULL, reason), reason=reason)
    check(definition, full)
    return full


def by_rows(definition: Definition, decision: Decision) -> Decision:
    """The stored rows are looked for that go, which was found while changes were read; refuses
    likewise."""
    rows = decision.instead(_finds_rows(definition), Reason.ROWS_WENT)
    check(definition, rows)
    return rows


def _finds_rows(definition: Definition) -> Strategy:
    """What is taken instead of `append`: rows whose last digits may differ are found by key."""
    return Strategy.KEYS if definition.inexact else Strategy.ROWS


def check(definition: Definition, decision: Decision) -> None:
    """Refuses what the table's mode or its limit rules out."""
    if decision.strategy is Strategy.FULL:
        check_mode(definition, decision.reason)
    check_limit(definition, decision)


def check_mode(definition: Definition, reason: Reason) -> None:
    """REFRESH_MODE = INCREMENTAL never recomputes silently."""
    if definition.options.refresh_mode is RefreshMode.INCREMENTAL and reason not in UNAVOIDABLE:
        raise Refused(
            f"REFRESH_MODE = INCREMENTAL rules out recomputing, but: {reason.value}",
            reason=Reason.MODE_REFUSES_FULL,
            about=str(definition.name),
            hint=f"REFRESH DYNAMIC TABLE {definition.name} FULL, or REFRESH_MODE = AUTO",
        )


def check_limit(definition: Definition, decision: Decision) -> None:
    """MAX_SCAN_BYTES: a refresh that would read more refuses, unless somebody asked for it."""
    limit, expected = definition.options.max_scan_bytes, decision.estimate
    if limit is None or expected is None or expected.bytes <= limit:
        return
    if decision.reason not in UNAVOIDABLE:
        raise Refused(
            f"the refresh would read {expected.bytes:,} bytes, MAX_SCAN_BYTES is {limit:,}",
            reason=Reason.SCAN_LIMIT,
            about=str(definition.name),
            hint=f"ALTER DYNAMIC TABLE {definition.name} SET MAX_SCAN_BYTES = {expected.bytes}",
        )


def _decide(facts: Facts) -> Decision:  # noqa: PLR0911  a list of rules
    """The first rule that applies; the order is from what must be to what may be."""
    if facts.build is None:
        return _full(facts, Action.INITIALIZE, Reason.FIRST_LOAD)
    if facts.build.fingerprint != facts.definition.built_from:
        query = facts.build.fingerprint.partition("/")[0]
        if query != facts.definition.fingerprint:
            return _full(facts, Action.REINITIALIZE, Reason.DEFINITION_CHANGED)
        return _full(facts, Action.REFRESH, Reason.VIEW_CHANGED)
    if facts.forced is Strategy.FULL:
        return _full(facts, Action.REFRESH, Reason.FORCED)
    if facts.foreign_change:
        return _full(facts, Action.REFRESH, Reason.FOREIGN_CHANGE)
    if _replaced(facts.build, facts.pins):
        return _full(facts, Action.REFRESH, Reason.SOURCE_REPLACED)
    if facts.moved or facts.clock_moved:
        return _by_changes(facts)
    return Decision(action=Action.REFRESH, strategy=Strategy.NO_DATA, reason=Reason.NOT_MOVED)


def _by_changes(facts: Facts) -> Decision:
    """The cheapest strategy that the query has; recompute where it has none."""
    why = Reason.CHANGED if facts.moved else Reason.TIME_PASSED
    if facts.definition.options.refresh_mode is RefreshMode.FULL:
        return _full(facts, Action.REFRESH, why, rather_than=Reason.DECLARED_FULL)
    plan = facts.plan()
    if isinstance(plan, NotIncremental):
        return _full(facts, Action.REFRESH, plan.reason)
    if not facts.definition.deterministic:
        return _full(facts, Action.REFRESH, Reason.NON_DETERMINISTIC)
    sizes = facts.sizes()
    found = _possible_now(plan, facts, sizes)
    ways = [strategy for strategy in INCREMENTAL if found[strategy] is None]
    estimates = _estimates([*ways, Strategy.FULL], plan, facts, sizes)
    if facts.forced is not None:
        _check_possible(plan, facts.definition, facts.forced)
        rows_went = found[facts.forced] is Reason.ROWS_WENT
        chosen = _finds_rows(facts.definition) if rows_went else facts.forced
    else:
        chosen = _chosen(ways, estimates, facts.definition)
    if chosen is Strategy.FULL:
        why = Reason.DEARER
    decision = Decision(
        action=Action.REFRESH,
        strategy=chosen,
        reason=why,
        estimates=estimates,
        changed=costs.changed_share(sizes),
    )
    not_taken = {
        way: failed or _why_not(way, decision, facts)
        for way, failed in found.items()
        if way not in (chosen, Strategy.NO_DATA)
    }
    return replace(decision, rejected=not_taken)


def _possible_now(plan: DeltaPlan, facts: Facts, sizes: Sizes | None) -> Possible:
    """Rows are appended only if none went, as far as that is known before they are read."""
    found = possible(plan, facts.definition)
    if found[Strategy.APPEND] is not None:
        return found
    only_come = sizes.only_adds if sizes is not None else facts.rows_only_come()
    return {**found, Strategy.APPEND: Reason.ROWS_WENT} if only_come is False else found


def _why_not(way: Strategy, decision: Decision, facts: Facts) -> Reason:
    """Why a strategy was not taken that is possible."""
    if facts.forced is not None:
        return Reason.FORCED
    if way is Strategy.FULL:
        options = facts.definition.options
        if options.refresh_mode is RefreshMode.INCREMENTAL:
            return Reason.MODE_REFUSES_FULL
        if options.cardinality_threshold is not None and decision.strategy in COUNTS_KEYS:
            return Reason.BELOW_THRESHOLD
    seconds = {estimate.strategy: estimate.seconds for estimate in decision.estimates}
    dearer = bool(seconds) and seconds[way] > seconds[decision.strategy]
    return Reason.DEARER if dearer else Reason.NOT_CHEAPER


def _estimates(
    ways: Sequence[Strategy], plan: DeltaPlan, facts: Facts, sizes: Sizes | None
) -> tuple[Estimate, ...]:
    if sizes is None:
        return ()
    return costs.estimates(ways, sizes, _shape(plan, facts.definition), facts.history())


def _shape(plan: DeltaPlan, definition: Definition) -> costs.Shape:
    merging = plan.merging
    beside = isinstance(merging, Merging) and Joined(merging).is_possible(
        plan.dialect, definition.types
    )
    return costs.Shape(
        linear=plan.monotone,
        merges_in_place=beside,
        extremes=isinstance(merging, Merging) and merging.may_need_rows(definition.types),
    )


def storages(facts: Facts) -> tuple[costs.StorageCost, ...]:
    """What the ways to store a table would cost, if it is an aggregate that has both."""
    if facts.definition.options.refresh_mode is RefreshMode.FULL:
        return ()
    plan, sizes = facts.plan(), facts.sizes()
    if sizes is None or isinstance(plan, NotIncremental) or isinstance(plan.merging, Reason):
        return ()
    if Partials(plan.merging).reason_against(facts.definition.types) is not None:
        return ()
    rests, history = not facts.moved and not facts.clock_moved, facts.history()
    if rests:
        sizes = costs.supposed(sizes, history)
    shape = _shape(plan, facts.definition)
    return costs.storages(sizes, shape, history, is_supposed=rests)


def _chosen(
    ways: Sequence[Strategy], estimates: Sequence[Estimate], definition: Definition
) -> Strategy:
    """The cheapest one; in the order of INCREMENTAL where nothing is known of their costs.

    The user's CARDINALITY_THRESHOLD stands for the comparison with `full` where the affected keys
    are counted (see `WorkArea.delta`); for strategies that count none, cost remains the brake.
    """
    by_changes = [estimate for estimate in estimates if estimate.strategy in ways]
    options = definition.options
    if not by_changes:
        return ways[0]
    cheapest = costs.cheapest(by_changes).strategy
    counted = options.cardinality_threshold is not None and cheapest in COUNTS_KEYS
    if counted or options.refresh_mode is RefreshMode.INCREMENTAL:
        return cheapest
    return costs.cheapest(estimates).strategy


def possible(plan: DeltaPlan | NotIncremental, definition: Definition) -> Possible:
    """Every strategy of a table, and why not."""
    always: Possible = {Strategy.NO_DATA: None, Strategy.FULL: None}
    if isinstance(plan, NotIncremental) or not definition.deterministic:
        failed = plan.reason if isinstance(plan, NotIncremental) else Reason.NON_DETERMINISTIC
        return dict.fromkeys(INCREMENTAL, failed) | dict(always)
    found = dict(plan.possible())
    if isinstance(plan.merging, Merging):
        found[Strategy.MERGE] = plan.merging.reason_against(definition.types)
    if definition.inexact:  # their last digits differ between runs: rows are found by key
        found[Strategy.ROWS] = Reason.NON_DETERMINISTIC
        found[Strategy.KEYS] = None
    if definition.in_parts is None:
        return found | {Strategy.FOLD: Reason.STORAGE}
    others = (Strategy.APPEND, Strategy.MERGE, Strategy.ROWS)
    return found | {Strategy.FOLD: None} | dict.fromkeys(others, Reason.STORAGE)


def _check_possible(plan: DeltaPlan, definition: Definition, wanted: Strategy) -> None:
    found = possible(plan, definition)
    reason = found.get(wanted, Reason.NOT_INCREMENTAL)
    if reason is not None:
        ways = ", ".join(way.value for way, why in found.items() if why is None)
        raise InvalidInput(
            f"strategy {wanted.value!r} is not possible for this query: {reason.value}",
            reason=Reason.NOT_INCREMENTAL,
            about=str(definition.name),
            hint=f"possible are {ways}; docs/reasons.md says what {reason.value} means",
        )


def _full(
    facts: Facts, action: Action, reason: Reason, *, rather_than: Reason | None = None
) -> Decision:
    """Weighed although there is no choice: the limit binds it, and `plan` tells what it costs."""
    sizes = facts.sizes()
    found = () if sizes is None else (costs.whole(sizes, facts.history()),)
    return Decision(
        action=action,
        strategy=Strategy.FULL,
        reason=reason,
        estimates=found,
        changed=costs.changed_share(sizes),
        rejected=dict.fromkeys(INCREMENTAL, rather_than or reason),
    )


def _replaced(build: Build, pins: Sequence[Pin]) -> bool:
    """A source is another table than the one the rows were built from."""
    before = {pin.source_id for pin in build.pins}
    return any(pin.source_id not in before for pin in pins)
