"""The choice by cost: what is weighed, what history corrects, and whose word counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from builders import definition, pin
from test_decide import BUILT, MOVED, QUIET, TABLE

from dynamic_tables.compiler.plan import plan_query
from dynamic_tables.compiler.refused import unfaithful
from dynamic_tables.errors import Refused
from dynamic_tables.lake.base import Sizes
from dynamic_tables.model import Action, Estimate, Outcome, RefreshRecord, Strategy
from dynamic_tables.options import Options, Storage
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh import costs
from dynamic_tables.refresh.decide import Facts, by_rows, decide, fallen_back
from dynamic_tables.refresh.preview import _sizes_coming

MB = 2**20
LARGE = Sizes(changed_rows=100, changed_bytes=MB, source_bytes=4000 * MB, stored_bytes=100 * MB)
LIGHT = Sizes(  # TPC-H's q13
    changed_rows=3_000, changed_bytes=MB, source_bytes=72 * MB, stored_bytes=2_000,
    beside_bytes=12 * MB,
)  # fmt: skip
WAYS = (Strategy.MERGE, Strategy.KEYS, Strategy.ROWS, Strategy.FULL)


def record(strategy: Strategy, took_s: float, expected: Estimate) -> RefreshRecord:
    return RefreshRecord(
        refresh_id="r",
        table=definition("t").name,
        table_id="t",
        action=Action.REFRESH,
        outcome=Outcome.DONE,
        reason=Reason.CHANGED,
        strategy=strategy,
        estimates=(expected,),
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_ms=round(took_s * 1000),
    )


def weighed(sizes: Sizes, *history: RefreshRecord) -> dict[Strategy, Estimate]:
    shape = costs.Shape(linear=False)
    return {e.strategy: e for e in costs.estimates(WAYS, sizes, shape, history)}


def chosen(sizes: Sizes, *history: RefreshRecord) -> tuple[str, str]:
    facts = replace(QUIET, moved=MOVED, sizes=lambda: sizes, history=lambda: history)
    decision = decide(facts)
    return decision.strategy.value, decision.reason.value


def test_a_small_change_of_a_large_table_is_merged() -> None:
    assert chosen(LARGE) == ("merge", "CHANGED")


def test_a_change_of_everything_is_recomputed() -> None:
    assert chosen(replace(LARGE, changed_bytes=8000 * MB)) == ("full", "DEARER")


def test_rows_that_are_marked_as_gone_are_looked_for_in_whole_files() -> None:
    """Estimates and limits tell what is read, not only what changed."""
    scattered = replace(LARGE, only_adds=False, unchanged_bytes=3000 * MB)
    few, all_over = weighed(LARGE), weighed(scattered)
    for strategy in (Strategy.MERGE, Strategy.KEYS, Strategy.ROWS):
        assert all_over[strategy].bytes == few[strategy].bytes + 3000 * MB
        assert all_over[strategy].seconds > few[strategy].seconds + 60
    assert all_over[Strategy.FULL] == few[Strategy.FULL]
    assert chosen(replace(scattered, unchanged_bytes=5000 * MB)) == ("full", "DEARER")


@pytest.mark.parametrize("stored_rows", [None, 10])
def test_what_is_read_of_marked_files_is_no_matter_of_children(stored_rows: int | None) -> None:
    """They read the changes of the table above them, which its own sources do not weigh on."""
    sizes = replace(LARGE, unchanged_bytes=3000 * MB, stored_rows=stored_rows)
    passed_on = _sizes_coming(decide(replace(QUIET, moved=MOVED)), sizes, appends=False)
    assert passed_on is not None
    assert (passed_on.changed_bytes > 0, passed_on.unchanged_bytes) == (True, 0)


def test_a_tiny_table_is_not_worth_an_argument() -> None:
    tiny = Sizes(changed_rows=9, changed_bytes=2000, source_bytes=1000, stored_bytes=500)
    assert chosen(tiny) == ("merge", "CHANGED")


def test_a_cold_start_tells_nothing() -> None:
    tiny = Sizes(changed_rows=9, changed_bytes=2000, source_bytes=1000, stored_bytes=500)
    slow = record(Strategy.MERGE, 60.0, weighed(tiny)[Strategy.MERGE])
    assert chosen(tiny, slow) == ("merge", "CHANGED")


def test_a_light_refresh_that_took_too_long_for_a_cold_start_was_weighed_wrong() -> None:
    """TPC-H's q13, merged in 7.7 s round after round where recomputing took 3.4."""
    light = weighed(LIGHT)[Strategy.MERGE]
    assert light.weight < costs.TELLING
    quick, slow = (record(Strategy.MERGE, took, light) for took in (3.9, 7.7))
    assert chosen(LIGHT, quick) == ("merge", "CHANGED")
    assert chosen(LIGHT, slow) == ("full", "DEARER")
    assert chosen(LIGHT, slow, slow, slow, quick, quick) == ("full", "DEARER")


def test_joins_read_the_other_side() -> None:
    alone, joined = weighed(LARGE), weighed(replace(LARGE, beside_bytes=7 * MB))
    assert joined[Strategy.MERGE].bytes == alone[Strategy.MERGE].bytes + 7 * MB
    assert joined[Strategy.FULL] == alone[Strategy.FULL]


def test_history_corrects_and_fades() -> None:
    merge = weighed(LARGE)[Strategy.MERGE]
    slow = record(Strategy.MERGE, 10 * merge.seconds, merge)
    assert 8 < weighed(LARGE, slow)[Strategy.MERGE].seconds / merge.seconds < 15
    assert chosen(replace(LARGE, source_bytes=800 * MB), slow) == ("full", "DEARER")
    other = record(Strategy.KEYS, 1.0, weighed(LARGE)[Strategy.KEYS])
    later = weighed(LARGE, *[other] * 100, slow)
    assert later[Strategy.MERGE].seconds < 1.2 * merge.seconds


def test_what_was_never_tried_is_no_better_than_what_was() -> None:
    """A merge in a process that had just started took 13 s; then `keys` took 22, and `rows` 25,
    where recomputing took 6: both read what the merge reads, and more."""
    sizes = Sizes(
        changed_rows=200_000, changed_bytes=2 * MB, source_bytes=60 * MB, stored_bytes=12 * MB,
        stored_rows=1_000_000, only_adds=True,
    )  # fmt: skip
    slow = record(Strategy.MERGE, 12.8, weighed(sizes)[Strategy.MERGE])
    full = record(Strategy.FULL, 30.0, weighed(sizes)[Strategy.FULL])
    loaded = replace(full, reason=Reason.FIRST_LOAD)  # in the same process
    assert chosen(sizes, loaded) == ("merge", "CHANGED")
    assert chosen(sizes, slow, loaded) == ("merge", "CHANGED")
    known = weighed(sizes, slow)
    assert known[Strategy.KEYS].seconds > known[Strategy.MERGE].seconds
    tried = record(Strategy.KEYS, 2.0, weighed(sizes)[Strategy.KEYS])  # it may be better after all
    assert weighed(sizes, tried, slow)[Strategy.KEYS].seconds < known[Strategy.MERGE].seconds


@pytest.mark.parametrize(("sizes", "took_s"), [(LARGE, 3.5), (LIGHT, 1.2)])
def test_one_bad_measurement_among_many_does_not_count(sizes: Sizes, took_s: float) -> None:
    merge = weighed(sizes)[Strategy.MERGE]
    good = record(Strategy.MERGE, took_s, merge)
    slow = record(Strategy.MERGE, 10 * took_s, merge)
    assert chosen(sizes, slow, good, good) == ("merge", "CHANGED")
    assert chosen(sizes, good, good, slow) == ("merge", "CHANGED")
    assert chosen(sizes, *[good] * 4, slow) == ("merge", "CHANGED")


@pytest.mark.parametrize(
    "reason",
    [
        Reason.ABOVE_THRESHOLD,
        Reason.HISTORY_GONE,
        Reason.CHANGES_FAILED,
        Reason.SOURCE_SCHEMA_CHANGED,
        Reason.RECOVERED,
    ],
)
def test_who_read_changes_in_vain_tells_nothing_of_recomputing(reason: Reason) -> None:
    full = weighed(LARGE)[Strategy.FULL]
    slow = record(Strategy.FULL, 10 * full.seconds, full)
    assert weighed(LARGE, slow)[Strategy.FULL].seconds > 5 * full.seconds
    assert weighed(LARGE, replace(slow, reason=reason))[Strategy.FULL] == full


def test_the_first_load_tells_how_dear_a_query_is_until_another_one_does() -> None:
    """A window over a large table is sorted; nobody knows but who did it once."""
    full = weighed(LARGE)[Strategy.FULL]
    loaded = replace(record(Strategy.FULL, 3 * full.seconds, full), reason=Reason.FIRST_LOAD)
    assert weighed(LARGE, loaded)[Strategy.FULL].seconds == pytest.approx(3 * full.seconds, 0.05)
    quick = replace(record(Strategy.FULL, 2.0, full), reason=Reason.FIRST_LOAD)
    assert weighed(LARGE, quick)[Strategy.FULL] == full  # it may have had less to do
    again = record(Strategy.FULL, full.seconds, full)
    assert weighed(LARGE, again, loaded)[Strategy.FULL].seconds == pytest.approx(full.seconds)


def test_a_first_load_does_not_pay_for_the_start_of_its_process() -> None:
    small = replace(LARGE, source_bytes=60 * MB)
    full = weighed(small)[Strategy.FULL]
    cold = replace(record(Strategy.FULL, full.seconds + 3, full), reason=Reason.FIRST_LOAD)
    assert weighed(small, cold)[Strategy.FULL] == full


def test_refreshes_of_about_the_same_weight_tell_best() -> None:
    """Few keys of many changes cost less than they weigh, many more: both are remembered."""
    small, large = (replace(LARGE, changed_bytes=n * MB) for n in (10, 1000))
    light, heavy = (weighed(sizes)[Strategy.KEYS] for sizes in (small, large))
    cheap = record(Strategy.KEYS, light.seconds / 4, light)
    dear = record(Strategy.KEYS, heavy.seconds * 2, heavy)
    learned = [cheap, cheap, cheap, cheap, cheap, dear]
    now = [weighed(sizes, *learned)[Strategy.KEYS].seconds for sizes in (small, large)]
    assert now[0] == pytest.approx(light.seconds / 4, rel=0.2)
    assert now[1] > 1.5 * heavy.seconds


def test_what_another_weight_took_is_believed_the_less_the_further_it_is() -> None:
    keys = [weighed(replace(LARGE, changed_bytes=n * MB))[Strategy.KEYS] for n in (1, 1200, 9000)]
    assert keys[1].weight > costs.NEAR * keys[0].weight
    assert keys[2].weight > costs.FAR * keys[0].weight
    cheap = record(Strategy.KEYS, 1.0, keys[0])
    learned = [
        weighed(replace(LARGE, changed_bytes=n * MB), cheap)[Strategy.KEYS] for n in (1, 1200, 9000)
    ]
    shares = [now.seconds / before.seconds for now, before in zip(learned, keys, strict=True)]
    assert shares[0] < 0.2
    assert shares[0] < shares[1] < 0.9
    assert shares[2] == 1.0


def test_compacting_and_recovering_are_not_the_time_of_a_strategy() -> None:
    merge = weighed(LARGE)[Strategy.MERGE]
    done = {"pinned": 100, "computed": round(merge.seconds * 1000) - 200, "registered": 100}
    compacted = replace(record(Strategy.MERGE, 10 * merge.seconds, merge), steps_ms=done)
    assert weighed(LARGE, compacted)[Strategy.MERGE].seconds == pytest.approx(merge.seconds, 0.01)
    slow = {"pinned": 100, "computed": 10_000 * round(merge.seconds), "recorded": 10}
    after_recovery = replace(compacted, steps_ms=slow)
    assert weighed(LARGE, after_recovery)[Strategy.MERGE] == merge


@pytest.mark.parametrize(
    "option", [{"cardinality_threshold": "0.5"}, {"refresh_mode": "INCREMENTAL"}]
)
def test_the_users_word_stands_for_the_comparison(option: dict[str, str]) -> None:
    table = replace(TABLE, options=Options.from_kwargs(**option))
    sizes = replace(LARGE, changed_bytes=8000 * MB)
    facts = replace(QUIET, definition=table, moved=MOVED, sizes=lambda: sizes)
    assert decide(facts).strategy is Strategy.MERGE


def rowwise(sizes: Sizes | None, **options: object) -> Facts:
    """Facts of a query that nothing can take a row from but its sources."""
    plan = plan_query(
        "SELECT a, n FROM orders", {"orders": ("a", "n")}, columns=("a", "n"), dialect="duckdb"
    )
    table = replace(TABLE, options=Options.from_kwargs(**options))
    return replace(QUIET, definition=table, moved=MOVED, plan=lambda: plan, sizes=lambda: sizes)


def test_the_threshold_is_no_word_on_strategies_that_count_no_keys() -> None:
    """A table of rows has no other brake than the cost."""
    assert decide(rowwise(LARGE, cardinality_threshold=0.5)).strategy is Strategy.APPEND
    everything = replace(LARGE, changed_bytes=8000 * MB, changed_rows=10**9)
    decision = decide(rowwise(everything, cardinality_threshold=0.5))
    assert (decision.strategy, decision.reason) == ("full", "DEARER")
    assert decide(rowwise(everything, refresh_mode="INCREMENTAL")).strategy is Strategy.APPEND


GOES = replace(LARGE, only_adds=False)


def test_where_rows_went_stored_rows_are_weighed() -> None:
    """They are looked for among the stored ones, which an append does not read."""
    adds, goes = decide(rowwise(LARGE)), decide(rowwise(GOES))
    assert (adds.strategy, goes.strategy) == ("append", "rows")
    assert (adds.rejected[Strategy.ROWS], goes.rejected[Strategy.APPEND]) == ("DEARER", "ROWS_WENT")
    assert adds.estimate is not None
    assert goes.estimate is not None
    assert goes.estimate.bytes == adds.estimate.bytes + LARGE.stored_bytes
    assert {e.strategy for e in goes.estimates} == {Strategy.ROWS, Strategy.FULL}


def test_where_rows_went_the_limit_binds_what_reads_stored_rows() -> None:
    limited = {"max_scan_bytes": 50 * MB}
    assert decide(rowwise(LARGE, **limited)).strategy is Strategy.APPEND
    with pytest.raises(Refused, match="would read 105,906,176 bytes"):
        decide(rowwise(GOES, **limited))
    with pytest.raises(Refused):
        decide(replace(rowwise(GOES, **limited), forced=Strategy.APPEND))


def test_where_rows_went_that_have_uncertain_digits_they_are_found_by_key() -> None:
    limited = rowwise(GOES, max_scan_bytes=50 * MB)
    table = replace(limited.definition, approximate=("n",))
    facts = replace(limited, definition=table, forced=Strategy.APPEND)
    with pytest.raises(Refused, match="would read"):
        decide(facts)
    free = replace(facts, definition=replace(table, options=Options.from_kwargs()))
    assert decide(free).strategy is Strategy.KEYS
    appends = decide(replace(free, sizes=lambda: LARGE))
    assert by_rows(free.definition, appends).strategy is Strategy.KEYS


def test_where_rows_went_recomputing_may_be_cheaper() -> None:
    large = replace(GOES, stored_bytes=9000 * MB)
    decision = decide(rowwise(large))
    assert (decision.strategy, decision.reason) == ("full", "DEARER")
    assert decision.rejected[Strategy.APPEND] == "ROWS_WENT"
    assert decide(rowwise(replace(large, only_adds=True))).strategy is Strategy.APPEND
    assert decide(rowwise(large, refresh_mode="INCREMENTAL")).strategy is Strategy.ROWS


@pytest.mark.parametrize(
    ("told", "strategy"), [(True, "append"), (None, "append"), (False, "rows")]
)
def test_logs_tell_of_rows_that_went_where_nothing_tells_sizes(
    told: bool | None, strategy: str
) -> None:
    facts = replace(rowwise(None), rows_only_come=lambda: told)
    assert decide(facts).strategy == strategy
    assert decide(replace(facts, forced=Strategy.APPEND)).strategy == strategy


def test_rows_that_are_found_to_go_on_the_way_are_bound_by_the_limit() -> None:
    facts = rowwise(LARGE, max_scan_bytes=50 * MB)
    decision = decide(facts)
    assert decision.strategy is Strategy.APPEND
    with pytest.raises(Refused, match="MAX_SCAN_BYTES is 52,428,800"):
        by_rows(facts.definition, decision)
    found = by_rows(TABLE, decision)
    assert (found.strategy, found.reason) == ("rows", "CHANGED")
    assert found.rejected[Strategy.APPEND] == "ROWS_WENT"
    assert Strategy.ROWS not in found.rejected


def test_a_limit_refuses_before_anything_is_read() -> None:
    table = replace(TABLE, options=Options.from_kwargs(max_scan_bytes=MB))
    facts = replace(QUIET, definition=table, moved=MOVED, sizes=lambda: LARGE)
    with pytest.raises(Refused, match="MAX_SCAN_BYTES is 1,048,576") as refused:
        decide(facts)
    assert refused.value.reason is Reason.SCAN_LIMIT
    assert decide(replace(facts, forced=Strategy.FULL)).strategy is Strategy.FULL


WHOLE = {  # every way to a recomputation that nobody asked for
    "FOREIGN_CHANGE": replace(QUIET, foreign_change=True),
    "SOURCE_REPLACED": replace(QUIET, pins=(pin("orders", 1, source_id="another"),)),
    "VIEW_CHANGED": replace(QUIET, build=replace(BUILT, fingerprint="f/another")),
    "NON_DETERMINISTIC": replace(QUIET, moved=MOVED),
    "SQL_NOT_FAITHFUL": replace(QUIET, moved=MOVED, plan=lambda: unfaithful("PIVOT")),
    "CHANGED": replace(QUIET, moved=MOVED),
}
ASKED_FOR = {
    "FIRST_LOAD": replace(QUIET, build=None),
    "DEFINITION_CHANGED": replace(QUIET, build=replace(BUILT, fingerprint="another")),
    "FORCED": replace(QUIET, forced=Strategy.FULL),
}


def limited(facts: Facts, reason: str, **options: object) -> Facts:
    mode = {"refresh_mode": "FULL"} if reason == "CHANGED" else {}
    table = replace(TABLE, deterministic=reason != "NON_DETERMINISTIC")
    table = replace(table, options=Options.from_kwargs(**options, **mode))
    return replace(facts, definition=table, sizes=lambda: LARGE)


@pytest.mark.parametrize(("reason", "facts"), [*WHOLE.items(), *ASKED_FOR.items()])
def test_every_recomputation_is_weighed(reason: str, facts: Facts) -> None:
    decision = decide(limited(facts, reason))
    assert (decision.strategy, decision.reason) == ("full", reason)
    assert decision.estimate is not None
    assert decision.estimate.bytes == LARGE.source_bytes


@pytest.mark.parametrize(("reason", "facts"), WHOLE.items())
def test_the_limit_binds_every_recomputation(reason: str, facts: Facts) -> None:
    with pytest.raises(Refused, match="MAX_SCAN_BYTES is 1,048,576"):
        decide(limited(facts, reason, max_scan_bytes=MB))


@pytest.mark.parametrize(("reason", "facts"), ASKED_FOR.items())
def test_the_limit_does_not_bind_what_was_asked_for(reason: str, facts: Facts) -> None:
    assert decide(limited(facts, reason, max_scan_bytes=MB)).reason == reason


@pytest.mark.parametrize(
    "reason",
    [
        Reason.ABOVE_THRESHOLD,
        Reason.HISTORY_GONE,
        Reason.CHANGES_FAILED,
        Reason.SOURCE_SCHEMA_CHANGED,
    ],
)
def test_the_limit_binds_who_falls_back_to_recomputing(reason: Reason) -> None:
    facts = limited(replace(QUIET, moved=MOVED), "", max_scan_bytes=200 * MB)
    decision = decide(facts)
    assert decision.strategy is Strategy.MERGE  # which reads less
    with pytest.raises(Refused) as refused:
        fallen_back(facts.definition, decision, reason)
    assert refused.value.reason is Reason.SCAN_LIMIT
    assert fallen_back(TABLE, decision, reason).reason is reason


def test_rows_bytes_and_seconds_of_the_chosen_strategy_and_the_others() -> None:
    """Of changes as far as the log tells; of a recomputation, what the table has."""
    sizes = replace(LARGE, stored_rows=5_000)
    found = weighed(sizes)
    assert {way: e.rows for way, e in found.items()} == {
        Strategy.MERGE: 100,
        Strategy.KEYS: 100,
        Strategy.ROWS: 100,
        Strategy.FULL: 5_000,
    }
    assert weighed(replace(sizes, changed_rows=None))[Strategy.MERGE].rows is None
    for expected in found.values():
        told = expected.as_json()
        assert told.keys() >= {"strategy", "rows", "bytes", "seconds"}
        assert Estimate.from_json(told).rows == expected.rows
    del told["rows"]  # as it was recorded once
    assert Estimate.from_json(told).rows is None


def test_what_was_dearer_tells_how_much_had_changed() -> None:
    half = replace(LARGE, changed_bytes=8000 * MB, changed_rows=500, stored_rows=1000)
    decision = decide(replace(QUIET, moved=MOVED, sizes=lambda: half))
    assert (decision.reason, decision.changed) == ("DEARER", 0.5)
    all_of_it = replace(half, changed_rows=5000)
    assert decide(replace(QUIET, moved=MOVED, sizes=lambda: all_of_it)).changed == 1.0


FULL_TOO = ("merge", "keys", "rows")  # what QUIET's query has besides
NEVER = {"append": "NOT_MONOTONE", "fold": "STORAGE"}


@pytest.mark.parametrize(
    ("options", "times", "forced", "rejected"),
    [
        ({}, 1, None, {"keys": "DEARER", "rows": "DEARER", "full": "DEARER"}),
        ({}, 8000, None, dict.fromkeys(FULL_TOO, "DEARER")),
        (
            {"cardinality_threshold": 0.5}, 8000, None,
            {"keys": "DEARER", "rows": "DEARER", "full": "BELOW_THRESHOLD"},
        ),
        (
            {"refresh_mode": "INCREMENTAL"}, 8000, None,
            {"keys": "DEARER", "rows": "DEARER", "full": "MODE_REFUSES_FULL"},
        ),
        ({"refresh_mode": "FULL"}, 1, None, dict.fromkeys(FULL_TOO, "DECLARED_FULL")),
        ({}, 1, "keys", {"merge": "FORCED", "rows": "FORCED", "full": "FORCED"}),
        ({}, 0, None, {"keys": "NOT_CHEAPER", "rows": "NOT_CHEAPER", "full": "NOT_CHEAPER"}),
    ],
)  # fmt: skip
def test_whoever_is_not_taken_has_a_reason(
    options: dict[str, object], times: int, forced: str | None, rejected: dict[str, str]
) -> None:
    sizes = replace(LARGE, changed_bytes=times * MB) if times else None
    table = replace(TABLE, options=Options.from_kwargs(**options))
    facts = replace(QUIET, definition=table, moved=MOVED, sizes=lambda: sizes)
    decision = decide(replace(facts, forced=Strategy(forced) if forced else None))
    declared = options.get("refresh_mode") == "FULL"
    never = dict.fromkeys(NEVER, "DECLARED_FULL") if declared else NEVER
    assert decision.rejected == never | rejected
    assert decision.strategy not in decision.rejected


def test_what_was_tried_in_vain_has_the_reason_for_that() -> None:
    decision = decide(replace(QUIET, moved=MOVED, sizes=lambda: LARGE))
    full = fallen_back(TABLE, decision, Reason.HISTORY_GONE)
    told = {"merge": "HISTORY_GONE", "keys": "DEARER", "rows": "DEARER"}
    assert full.rejected == NEVER | told


def advised(present: Storage, sizes: Sizes) -> str:
    found = costs.storages(sizes, costs.Shape(linear=False), ())
    assert {cost.storage for cost in found} == set(Storage)
    return costs.advice(found, present) or ""


def test_the_other_storage_is_advised_where_it_pays() -> None:
    assert "MERGE_ON_READ would refresh it in 1.1 s" in advised(Storage.IN_PLACE, LARGE)
    assert advised(Storage.MERGE_ON_READ, LARGE) == ""
    small = replace(LARGE, stored_bytes=MB)
    assert advised(Storage.IN_PLACE, small) == ""


@pytest.mark.parametrize(
    ("times", "ways"),
    [
        (1, ("merge", "merge", "keys")),
        (10, ("merge", "merge", "keys")),
        (100, ("merge", "full", "full")),
        (1000, ("merge", "full", "full")),
    ],
)
def test_rows_that_go_may_take_the_greatest_value_along(
    times: int, ways: tuple[str, str, str]
) -> None:
    """As measured at 20 million rows and a million groups: inserts, mixed changes, and `keys`."""
    adds = Sizes(
        changed_rows=2_000 * times,
        changed_bytes=20_000 * times,
        source_bytes=410 * MB,
        stored_bytes=20 * MB,
        stored_rows=1_000_000,
    )
    shape = costs.Shape(linear=False, merges_in_place=True, extremes=True)
    merge, full, keys = Strategy.MERGE, Strategy.FULL, Strategy.KEYS

    def cheapest(sizes: Sizes, *among: Strategy) -> str:
        return costs.cheapest(costs.estimates(among, sizes, shape, ())).strategy.value

    mixed = replace(adds, only_adds=False)
    found = cheapest(adds, merge, full), cheapest(mixed, merge, full), cheapest(mixed, keys, full)
    assert found == ways


@pytest.mark.parametrize(
    ("beside", "ways"),
    [
        (True, {1: "merge", 100: "merge", 1000: "merge", 5000: "full"}),
        (False, {1: "merge", 100: "merge", 1000: "full"}),
    ],
)
def test_many_changes_are_dearer_than_their_bytes(beside: bool, ways: dict[int, str]) -> None:
    """As measured at 20 million rows: a tenth is merged if one join does it, else recomputed."""
    source = Sizes(
        changed_rows=2000, changed_bytes=MB // 40, source_bytes=250 * MB, stored_bytes=20 * MB
    )
    shape = costs.Shape(linear=False, merges_in_place=beside)
    for times, way in ways.items():
        grown = replace(
            source, changed_rows=2000 * times, changed_bytes=source.changed_bytes * times
        )
        found = costs.estimates((Strategy.MERGE, Strategy.FULL), grown, shape, ())
        assert costs.cheapest(found).strategy == way, times
