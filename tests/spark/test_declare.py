"""CREATE, CREATE OR ALTER, CREATE OR REPLACE, ALTER: what is declared is what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dynamic_tables as dt
from oracle import bag, check

pytestmark = pytest.mark.spark

QUERY = "SELECT a, count(*) AS n FROM things GROUP BY a"


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> dt.DynamicTables:
    lake = dt.connect(tmp_path_factory.mktemp("declare") / "lake", jvm="quick", say=said.append)
    lake.sql("CREATE TABLE things (a INT, b INT) USING delta")
    lake.sql("INSERT INTO things VALUES (1, 10), (1, 20), (NULL, 30)")
    lake.sql(
        f"CREATE DYNAMIC TABLE counted TARGET_LAG = '5 minutes' COMMENT 'it''s ours' AS {QUERY}"
    )
    return lake


def test_definitions_live_in_store_and_properties(tables: dt.DynamicTables) -> None:
    state = tables.show("counted")
    stored = tables.spark.sql("SHOW TBLPROPERTIES counted ('dynamic_tables.definition')")
    assert json.loads(stored.collect()[0].value) == state.definition.as_json()
    detail = tables.spark.sql("DESCRIBE DETAIL counted").collect()[0]
    assert detail.description == "it's ours"
    assert detail.properties["delta.isolationLevel"] == "Serializable"
    assert detail.properties["delta.checkpointInterval"] == "50"
    assert detail.properties["delta.enableChangeDataFeed"] == "true"
    assert detail.location.endswith(f"counted-{state.definition.table_id[:8]}")


def test_create_names_sources_without_change_feed(tables: dt.DynamicTables) -> None:
    declared = tables.create("noted", "SELECT a FROM things", initialize="ON_SCHEDULE")
    assert "default.things has no change feed" in declared.notes[0]
    assert "delta.enableChangeDataFeed = true" in declared.notes[0]
    tables.drop("noted")


def test_create_again(tables: dt.DynamicTables) -> None:
    with pytest.raises(dt.InvalidInput) as caught:
        tables.create("counted", QUERY)
    assert caught.value.reason is dt.Reason.ALREADY_EXISTS
    assert tables.create("COUNTED", "SELECT nonsense", if_not_exists=True).did == "exists"


def test_create_or_alter_is_idempotent(tables: dt.DynamicTables) -> None:
    """The same words in other clothes are the same query; options are changed without a load."""
    before = tables.show("counted")
    same = "select a, COUNT(*) as n  -- how many\n from things /* ! */ group by a"
    again = tables.create(
        "counted", same, or_alter=True, target_lag="5 minutes", comment="it's ours"
    )
    assert (again.did, again.report) == ("unchanged", None)
    changed = tables.create("counted", same, or_alter=True, target_lag="1 hour")
    assert (changed.did, changed.report) == ("altered", None)
    after = tables.show("counted")
    assert str(after.definition.options.target_lag) == "1 hour"
    assert after.definition.revision == before.definition.revision + 1
    assert after.build == before.build


def test_a_new_query_says_its_cost_and_rebuilds(tables: dt.DynamicTables, said: list[str]) -> None:
    said.clear()
    wider = "SELECT a, count(*) AS n, sum(b) AS s FROM things GROUP BY a"
    declared = tables.create("counted", wider, or_alter=True)
    assert declared.did == "redefined"
    assert said
    assert said[0].startswith("default.counted has a new query and is built anew: reads 1 sources,")
    assert declared.report is not None
    record = declared.report["counted"]
    assert (record.action, record.reason) == ("reinitialize", "DEFINITION_CHANGED")
    check(tables, "counted")


def test_a_rebuild_that_fails_leaves_everything_as_it_was(tables: dt.DynamicTables) -> None:
    before = tables.show("counted")
    rows = bag(tables.read("counted").collect())
    with pytest.raises(dt.RefreshFailed):
        tables.create("counted", "SELECT 1 / (a - a) AS q FROM things", or_alter=True)
    after = tables.show("counted")
    assert after.definition.query == before.definition.query
    assert bag(tables.read("counted").collect()) == rows
    assert tables.refresh("counted")["counted"].reason == "NOT_MOVED"


def test_a_first_load_that_fails_leaves_no_trace(tables: dt.DynamicTables) -> None:
    warehouse = Path(tables.show("counted").definition.location.removeprefix("file:")).parent
    before = sorted(warehouse.iterdir())
    with pytest.raises(dt.RefreshFailed) as caught:
        tables.create("broken", "SELECT 1 / (a - a) AS q FROM things")
    assert "DIVIDE_BY_ZERO" in str(caught.value)
    assert sorted(warehouse.iterdir()) == before
    assert not tables.spark.catalog.tableExists("broken")
    assert [state.definition.name.name for state in tables.list()] == ["counted"]


def test_a_name_taken_by_the_user_stays_the_users(tables: dt.DynamicTables) -> None:
    """Declared but not loaded, the name is free; who takes it keeps it."""
    tables.create("contested", "SELECT a FROM things", initialize="ON_SCHEDULE")
    tables.sql("CREATE TABLE contested (mine INT) USING delta")
    report = tables.refresh("contested", on_error="report")
    assert report["contested"].reason == "ALREADY_EXISTS"
    assert tables.spark.table("contested").columns == ["mine"]
    tables.drop("contested")
    assert tables.spark.table("contested").columns == ["mine"]
    tables.sql("DROP TABLE contested")


def test_strange_columns_are_fixed_at_create(tables: dt.DynamicTables) -> None:
    """Delta blocks such a change with a change feed; we say so before anything happens."""
    before = tables.show("counted").definition
    with pytest.raises(dt.Refused) as caught:
        tables.create("counted", "SELECT a AS `a (b)` FROM things", or_alter=True)
    assert caught.value.reason is dt.Reason.BAD_COLUMNS
    assert "DROP DYNAMIC TABLE" in (caught.value.hint or "")
    assert tables.show("counted").definition == before


def test_create_or_replace_builds_anew(tables: dt.DynamicTables) -> None:
    declared = tables.sql(f"CREATE OR REPLACE DYNAMIC TABLE counted CLUSTER BY (a) AS {QUERY}")
    assert declared.did == "redefined"
    state = tables.show("counted")
    assert state.definition.options.cluster_by == ("a",)
    assert state.definition.options.target_lag is None
    assert [column.name for column in state.definition.columns] == ["a", "n"]
    check(tables, "counted")


def test_alter_set_unset_suspend_resume(tables: dt.DynamicTables) -> None:
    tables.sql("ALTER DYNAMIC TABLE counted SET CARDINALITY_THRESHOLD = 0.5, COMMENT 'new'")
    assert tables.show("counted").definition.options.cardinality_threshold == 0.5
    assert tables.spark.sql("DESCRIBE DETAIL counted").collect()[0].description == "new"
    tables.sql("ALTER DYNAMIC TABLE counted UNSET CARDINALITY_THRESHOLD")
    assert tables.show("counted").definition.options.cardinality_threshold is None
    assert tables.sql("ALTER DYNAMIC TABLE counted SUSPEND").did == "suspended"
    assert tables.refresh()["counted"].reason == "SUSPENDED"
    tables.sql("ALTER DYNAMIC TABLE counted RESUME")
    assert tables.refresh()["counted"].outcome == "done"
    with pytest.raises(dt.InvalidInput) as caught:
        tables.sql("ALTER DYNAMIC TABLE counted SET PARTITIONED BY (a)")  # it is clustered
    assert caught.value.reason is dt.Reason.CONTRADICTION
    tables.sql("ALTER DYNAMIC TABLE counted UNSET CLUSTER BY")
    with pytest.raises(dt.Refused) as refused:
        tables.sql("ALTER DYNAMIC TABLE counted SET PARTITIONED BY (a)")
    assert "PARTITIONED BY cannot be changed" in str(refused.value)


def test_partitioned_and_strange_columns(tables: dt.DynamicTables) -> None:
    tables.create(
        "parted",
        "SELECT a AS `a b`, b AS `;x`, map('k', b) AS m, array(named_struct('s', 1)) AS nested "
        "FROM things",
        partitioned_by=["a b"],
    )
    tables.create("reader", "SELECT `;x`, m FROM parted", initialize="ON_SCHEDULE")
    tables.sql("INSERT INTO things VALUES (5, 50)")
    assert tables.refresh("parted", "reader").ok  # a child: `parted` goes by difference
    check(tables, "parted", "reader")
    assert tables.spark.sql("DESCRIBE DETAIL parted").collect()[0].partitionColumns == ["a b"]
    tables.drop("parted", cascade=True)


def test_show_describe_explain(tables: dt.DynamicTables) -> None:
    assert [s.definition.name.name for s in tables.sql("SHOW DYNAMIC TABLES")] == ["counted"]
    assert tables.sql("DESCRIBE DYNAMIC TABLE counted") == tables.show("counted")
    explained = tables.sql("EXPLAIN DYNAMIC TABLE counted")
    assert "VERSION AS OF" in (explained.pinned_sql or "")
    assert explained.strategies[dt.Strategy.FULL] is None
    assert explained.strategies[dt.Strategy.KEYS] is None
    assert explained.strategies[dt.Strategy.APPEND] is dt.Reason.NOT_MONOTONE
    assert explained.key == ("a",)
    assert tables.sql(f"EXPLAIN CREATE DYNAMIC TABLE x AS {QUERY}").columns == (
        ("a", "INT"),
        ("n", "BIGINT"),
    )


def test_verify_shows_what_differs_and_forgives_rounding(tables: dt.DynamicTables) -> None:
    """Spark's own sums of doubles differ in the last digits between runs; others are exact. What
    somebody else wrote is noticed and mended."""
    tables.sql(
        "CREATE TABLE floats USING delta AS SELECT id % 3 AS g, 1.0D / id AS x FROM range(1, 30)"
    )
    tables.create("summed", "SELECT g, sum(x) AS s FROM floats GROUP BY g")
    stored = tables.show("summed").definition.stored_name.sql
    tables.spark.sql(
        f"UPDATE {stored} SET s = CASE g WHEN 1 THEN s * (1 + 1e-12) ELSE s * (1 + 1e-6) END"
        " WHERE g > 0"
    )
    tables.spark.sql(f"DELETE FROM {stored} WHERE g = 0")
    found = tables.verify("summed")
    assert (found.ok, found.difference.missing, found.difference.unexpected) == (False, 2, 1)
    assert {row["_difference"] for row in found.difference.sample} == {"missing", "unexpected"}
    assert {row["g"] for row in found.difference.sample} == {0, 2}
    record = tables.refresh("summed")["summed"]
    assert (record.strategy, record.reason) == ("full", "FOREIGN_CHANGE")
    assert tables.verify("summed").ok
    tables.drop("summed")


def test_a_syntax_error_says_where(shared: dt.DynamicTables) -> None:
    with pytest.raises(dt.InvalidInput) as caught:
        shared.create("nowhere", "SELECT 1 AS a\nFROM range(1),,")
    assert "line 2, column 15: [PARSE_SYNTAX_ERROR] Syntax error at or near" in str(caught.value)
    assert "SQLSTATE" not in str(caught.value)
