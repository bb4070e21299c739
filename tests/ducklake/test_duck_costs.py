"""Limits and thresholds on the way of a refresh, with sizes that DuckLake does not tell itself."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from duck_oracle import check
from rich.console import RenderableType
from test_duck_crash import Died, die_at

import dynamic_tables as dt
from dynamic_tables.lake.base import Sizes
from dynamic_tables.lake.duck.lake import DuckLake
from dynamic_tables.refresh.numbered import NumberedCommits
from dynamic_tables.render import console, explanation_text, state_json, tables_table
from dynamic_tables.steps import Step, observing
from tuning import TUNING

MB = 2**20
QUERY = "SELECT k, sum(v) AS s, count(v) AS c, count(*) AS n FROM fact GROUP BY k"
FACT = "CREATE TABLE fact AS SELECT range::INT AS k, 1 AS v FROM range(10)"


@pytest.fixture
def lake(tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch) -> dt.DynamicTables:
    """Ten groups; a large source, as far as anybody is told."""
    told = Sizes(
        changed_rows=3,
        changed_bytes=1000,
        source_bytes=400 * MB,
        stored_bytes=MB,
        stored_rows=10,
    )
    monkeypatch.setattr(DuckLake, "sizes", lambda *_: told)
    tables.sql(FACT)
    return tables


def console_text(shown: RenderableType) -> str:
    stream = io.StringIO()
    console(stream).print(shown)
    return stream.getvalue()


def change(tables: dt.DynamicTables, keys: int) -> None:
    tables.sql(f"UPDATE fact SET v = v + 1 WHERE k < {keys}")


def test_the_limit_binds_a_recomputation_that_was_found_out_on_the_way(
    lake: dt.DynamicTables,
) -> None:
    """More keys than the threshold would be recomputed, which would read too much."""
    lake.create("grouped", QUERY, cardinality_threshold=0.2, max_scan_bytes=100 * MB)
    change(lake, 1)
    assert lake.refresh("grouped")["grouped"].strategy == "merge"
    change(lake, 3)
    refused = lake.refresh("grouped", on_error="report")["grouped"]
    assert (refused.outcome, refused.reason) == ("failed", "SCAN_LIMIT")
    for _ in range(6):  # a rule of the user's is no failure of the table
        with pytest.raises(dt.RefreshFailed) as caught:
            lake.refresh("grouped")
        assert caught.value.exit_code_for_cli == 4
    assert lake.show("grouped").status == "active"
    (lag,) = lake.lags("grouped")
    assert lag.behind_s is not None
    assert lag.behind_s > 0
    shown = console_text(tables_table(lake.list(), [lag]))
    assert "refused" in shown
    assert "(SCAN_LIMIT" in shown  # in a narrow column
    (told,) = map(state_json, lake.list())
    assert (told["failures"], told["failure"]["reason"]) == (0, "SCAN_LIMIT")
    lake.sql("INSERT INTO grouped VALUES (77, 7, 7, 7)")
    assert [row.reason for row in lake.plan("grouped")] == ["SCAN_LIMIT"]  # FOREIGN_CHANGE
    assert lake.refresh("grouped", strategy="full")["grouped"].strategy == "full"
    check(lake, "grouped")
    (lag,) = lake.lags("grouped")
    assert (lag.behind_s, state_json(lake.show("grouped"))["failure"]) == (0.0, None)


def test_a_mode_that_refuses_leaves_the_table_behind(lake: dt.DynamicTables) -> None:
    lake.create("grouped", QUERY, cardinality_threshold=0.2, refresh_mode="INCREMENTAL")
    change(lake, 3)
    commit = lake.store.now()
    assert not lake.refresh(on_error="report").ok
    state = lake.show("grouped")
    assert state.behind_since is not None
    assert state.behind_since <= commit  # since the commit, not since the refusal
    shown = console_text(tables_table([state]))
    assert "refused" in shown
    assert "(MODE_REFUSES_FULL" in shown  # in a narrow column


def warnings(tables: dt.DynamicTables, name: str) -> tuple[str, ...]:
    (planned,) = tables.plan(name)
    assert (planned.strategy, planned.reason) in (("merge", "CHANGED"), ("keys", "CHANGED"))
    return planned.warnings


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cardinality_threshold": 0.29}, "recomputed (ABOVE_THRESHOLD) if more than 2 keys"),
        (
            {"cardinality_threshold": 0.2, "refresh_mode": "INCREMENTAL"},
            "refused (MODE_REFUSES_FULL) if more than 2 keys",
        ),
        (
            {"cardinality_threshold": 0.2, "max_scan_bytes": 100 * MB},
            "refused (SCAN_LIMIT) if more than 2 keys",
        ),
        ({"cardinality_threshold": 0.3}, None),  # three rows changed: three keys at most
        ({"cardinality_threshold": 1}, None),
        ({}, None),
    ],
)
def test_plan_tells_from_when_on_a_threshold_acts(
    lake: dt.DynamicTables, options: dict[str, object], said: str | None
) -> None:
    lake.create("grouped", QUERY, **options)
    change(lake, 3)
    assert warnings(lake, "grouped") == ((f"{said} are affected",) if said else ())
    done = lake.refresh("grouped", on_error="report")["grouped"]
    assert (done.strategy is dt.Strategy.MERGE) == (said is None)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT f.k, count(*) AS n FROM fact AS f JOIN fact AS g ON f.v = g.v GROUP BY f.k",
        "SELECT n, count(*) AS m FROM (SELECT v, count(*) AS n FROM fact GROUP BY v) GROUP BY n",
        "SELECT u, count(*) AS n FROM (SELECT unnest([k, v]) AS u FROM fact) GROUP BY u",
    ],
)
def test_few_changed_rows_may_be_of_many_keys(lake: dt.DynamicTables, query: str) -> None:
    lake.create("grouped", query, cardinality_threshold=0.3)
    change(lake, 3)
    assert warnings(lake, "grouped") == (
        "recomputed (ABOVE_THRESHOLD) if more than 3 keys are affected",
    )


def test_where_nobody_counts_rows_plan_tells_the_share(tables: dt.DynamicTables) -> None:
    tables.sql(FACT)
    tables.create("grouped", QUERY, cardinality_threshold=0.2)
    change(tables, 1)
    said = "recomputed (ABOVE_THRESHOLD) if more than 0.2 of its keys are affected"
    assert warnings(tables, "grouped") == (said,)
    assert said in str(tables.explain("grouped").next_refresh)


def test_explain_tells_a_declared_recomputation_apart(tables: dt.DynamicTables) -> None:
    tables.sql(FACT)
    tables.create("grouped", QUERY, refresh_mode="FULL")
    explained = tables.explain("grouped")
    assert (explained.possible, explained.otherwise) == ("no_data, full", "merge, keys, rows")
    assert explained.strategies[dt.Strategy.MERGE] is dt.Reason.DECLARED_FULL
    assert explained.strategies[dt.Strategy.APPEND] is dt.Reason.NOT_MONOTONE
    assert "declared REFRESH_MODE = FULL; with AUTO also by merge, keys, rows" in str(explained)
    shown = console_text(explanation_text(explained))
    for line in (
        r"strategies +no_data, full",
        r"declared +REFRESH_MODE = FULL",
        r"if it were AUTO +merge, keys, rows",
        r"not possible +append \(NOT_MONOTONE\), fold \(STORAGE\)",
    ):
        assert re.search(rf"^{line}\s*$", shown, re.M), shown
    tables.alter("grouped", refresh_mode="AUTO")
    explained = tables.explain("grouped")
    assert (explained.otherwise, explained.possible) == ("", "no_data, merge, keys, rows, full")


@pytest.mark.parametrize("option", [{"refresh_mode": "INCREMENTAL"}, {"max_scan_bytes": 100 * MB}])
@pytest.mark.parametrize("step", [Step.INTENDED, Step.LOCKED])
def test_what_must_not_recompute_goes_on_by_changes_after_a_crash(
    lake: dt.DynamicTables, option: dict[str, str], step: Step
) -> None:
    """The number of the refresh that died is given up, the next one is taken."""
    lake.create("grouped", QUERY, **option)
    change(lake, 1)
    with observing(die_at(step)), pytest.raises(Died):
        lake.refresh("grouped")
    intent = lake.store.intent(lake.show("grouped").definition.table_id)
    assert intent is not None
    change(lake, 2)
    record = lake.refresh("grouped")["grouped"]
    assert (record.strategy, record.reason) == ("merge", "CHANGED")
    assert record.sequence == intent.sequence + 1
    assert [r.reason for r in lake.history("grouped")] == ["CHANGED", "FIRST_LOAD"]
    check(lake, "grouped")


def test_a_commit_of_which_the_log_tells_nothing_is_not_recomputed_silently(
    lake: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("grouped", QUERY, refresh_mode="INCREMENTAL")
    change(lake, 1)
    with observing(die_at(Step.COMMITTED)), pytest.raises(Died):
        lake.refresh("grouped")
    with monkeypatch.context() as lost:
        lost.setattr(NumberedCommits, "landed", lambda *_: None)
        refused = lake.refresh("grouped", on_error="report")["grouped"]
    assert (refused.outcome, refused.reason) == ("failed", "MODE_REFUSES_FULL")
    assert lake.refresh("grouped").ok
    check(lake, "grouped")


def test_plan_explain_and_history_tell_rows_bytes_and_seconds(lake: dt.DynamicTables) -> None:
    """Of the strategy that is chosen and of those that are not."""
    lake.create("grouped", QUERY)
    change(lake, 3)
    (planned,) = lake.plan("grouped")
    explained = lake.explain("grouped").next_refresh
    (newest, first) = lake.refresh("grouped").records + tuple(lake.history("grouped")[1:])
    for told in (planned.as_json(), explained.as_json(), newest.as_json()):
        by = {expected["strategy"]: expected for expected in told["estimates"]}
        assert told["strategy"] == "merge"
        assert by.keys() == {"merge", "keys", "rows", "full"}
        assert {way: e["rows"] for way, e in by.items()} == {
            "merge": 3, "keys": 3, "rows": 3, "full": 10
        }  # fmt: skip
        assert by["full"]["bytes"] == 400 * MB
        assert by["merge"]["seconds"] < by["full"]["seconds"]
        assert told["rejected"] == {
            "append": "NOT_MONOTONE",
            "fold": "STORAGE",
            "keys": "DEARER",
            "rows": "DEARER",
            "full": "DEARER",
        }
    assert console_text(explanation_text(lake.explain("grouped"))).count("DEARER") == 0
    change(lake, 3)
    shown = re.sub(r"\s+", " ", console_text(explanation_text(lake.explain("grouped"))))
    assert re.search(r"merge 1\.\d s \(3 rows, [\d,]+ bytes\)", shown)
    assert re.search(r"full [\d.]+ s \(10 rows, [\d,]+ bytes, DEARER\)", shown)
    assert [e["strategy"] for e in first.as_json()["estimates"]] == ["full"]


def test_plan_has_figures_below_tables_that_are_going_to_change(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parent is expected to pass on what changed in its sources, but not more than it has."""
    tables.sql(FACT)
    tables.create("grouped", QUERY)
    tables.create("again", "SELECT s, count(*) AS n FROM grouped GROUP BY s")
    tables.create("last", "SELECT a.n, g.k FROM again AS a JOIN grouped AS g ON a.s = g.s")
    still = Sizes(
        changed_rows=0, changed_bytes=0, source_bytes=400 * MB, stored_bytes=MB, stored_rows=10
    )
    told = {
        "grouped": replace(still, changed_rows=70, changed_bytes=7000),
        "again": replace(still, stored_rows=2, source_bytes=MB),
        "last": replace(still, source_bytes=2 * MB),
    }
    monkeypatch.setattr(DuckLake, "sizes", lambda _, definition, *__: told[definition.name.name])
    change(tables, 3)
    planned = tables.plan()
    assert {row.table.name: row.rows for row in planned} == {"grouped": 70, "again": 10, "last": 12}
    assert [row.estimate is not None for row in planned] == [True] * 3
    told["grouped"] = replace(told["grouped"], stored_rows=None, changed_rows=None)
    assert [row.estimate is not None for row in tables.plan()] == [True, False, False]
    tables.refresh()
    check(tables, "last")


def test_what_either_storage_would_cost_is_told_of_a_table_at_rest(
    tables: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if as many rows changed as before its refreshes; at first, as if a hundredth did."""
    tables.sql(FACT)
    tables.create("grouped", QUERY)
    sizes = Sizes(
        changed_rows=0, changed_bytes=0, source_bytes=4000 * MB, stored_bytes=100 * MB,
        stored_rows=50_000,
    )  # fmt: skip
    monkeypatch.setattr(DuckLake, "sizes", lambda *_: sizes)

    def told(rows: int) -> None:
        (planned,) = tables.plan("grouped")
        assert planned.reason == "NOT_MOVED"
        assert [cost.storage for cost in planned.storages] == ["IN_PLACE", "MERGE_ON_READ"]
        assert [cost.as_json()["supposed_rows"] for cost in planned.storages] == [rows] * 2
        shown = console_text(explanation_text(tables.explain("grouped")))
        assert f"s if {rows:,} rows change, read in" in shown

    told(500)
    (advised,) = tables.plan("grouped")[0].warnings
    assert advised.startswith("STORAGE = MERGE_ON_READ would refresh it in")
    assert advised.endswith(", if 500 rows change")
    moved = replace(sizes, changed_rows=70, changed_bytes=7000)
    with monkeypatch.context() as changed:
        changed.setattr(DuckLake, "sizes", lambda *_: moved)
        change(tables, 1)
        (planned,) = tables.plan("grouped")
        assert {cost.supposed for cost in planned.storages} == {None}
        assert tables.refresh("grouped")["grouped"].strategy == "merge"
    told(70)
    tables.alter("grouped", refresh_mode="FULL")
    assert tables.plan("grouped")[0].storages == ()


def test_the_tuning_query_runs_as_it_is_written(tables: dt.DynamicTables) -> None:
    """Near the threshold, recomputed and by the affected keys; `how` has the strategy itself."""
    tables.sql(FACT)
    tables.create("grouped", QUERY, cardinality_threshold=0.2)
    change(tables, 3)
    recomputed = tables.refresh("grouped")["grouped"]
    assert (recomputed.strategy, recomputed.reason) == ("full", "ABOVE_THRESHOLD")
    tables.sql("ALTER DYNAMIC TABLE grouped UNSET CARDINALITY_THRESHOLD")
    change(tables, 3)
    merged = tables.refresh("grouped")["grouped"]
    assert (merged.strategy, merged.work.cardinality_ratio) == ("merge", pytest.approx(0.3))
    ((name, full, incremental),) = tables.sql(TUNING).collect()
    took = (recomputed.duration_ms, merged.duration_ms)
    assert (name, full, incremental) == ("main.grouped", *took)
    said = tables.sql("SELECT strategy, how FROM refresh_history ORDER BY history_no").collect()
    assert said == [("FULL", "full"), ("FULL", "full"), ("AFFECTED_KEYS", "merge")]


def test_changes_that_change_nothing_tell_how_many_keys_they_touched(
    tables: dt.DynamicTables,
) -> None:
    tables.sql(FACT)
    tables.sql("INSERT INTO fact SELECT k, 5 FROM fact")
    tables.create("grouped", QUERY)
    tables.sql("UPDATE fact SET v = 6 - v WHERE k < 3")
    record = tables.refresh("grouped")["grouped"]
    assert (record.strategy, record.reason) == ("no_data", "NET_EMPTY")
    assert record.work.cardinality_ratio == pytest.approx(0.3)


def test_a_recomputation_by_cost_or_by_hand_tells_the_share_too(lake: dt.DynamicTables) -> None:
    """Nobody counted keys: changed rows as the logs tell them."""
    lake.create("grouped", QUERY)
    change(lake, 3)
    record = lake.refresh("grouped", strategy="full")["grouped"]
    assert (record.reason, record.work.cardinality_ratio) == ("FORCED", pytest.approx(0.3))


def test_a_threshold_acts_on_the_next_refresh(tables: dt.DynamicTables) -> None:
    tables.sql(FACT)
    tables.create("grouped", QUERY)

    def next_refresh() -> tuple[str, str]:
        change(tables, 3)
        record = tables.refresh("grouped")["grouped"]
        check(tables, "grouped")
        return str(record.strategy), record.reason

    assert next_refresh() == ("merge", "CHANGED")
    tables.sql("ALTER DYNAMIC TABLE grouped SET CARDINALITY_THRESHOLD = 0.2")
    assert next_refresh() == ("full", "ABOVE_THRESHOLD")
    tables.alter("grouped", cardinality_threshold=0.5)
    assert next_refresh() == ("merge", "CHANGED")
