"""What happens to sources: schema changes, replacement, restoring, views, time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import dynamic_tables as dt
from oracle import bag, check

pytestmark = pytest.mark.spark


def test_columns_come_and_go(shared: dt.DynamicTables) -> None:
    """The star is frozen; columns that are not used may go; a used one is missed by name."""
    shared.sql(
        "CREATE TABLE shifts (a INT, b INT, c INT) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    shared.sql("INSERT INTO shifts VALUES (1, 2, 3)")
    shared.create("starred", "SELECT * FROM shifts", initialize="ON_SCHEDULE")
    shared.create("uses_ab", "SELECT a, b FROM shifts", initialize="ON_SCHEDULE")
    shared.refresh("starred", "uses_ab")
    shared.sql("ALTER TABLE shifts ADD COLUMN d INT")
    report = shared.refresh("starred", "uses_ab")
    assert {record.reason for record in report.records} == {"NOT_MOVED"}
    shared.sql("INSERT INTO shifts VALUES (2, 3, 4, 5)")
    shared.sql("ALTER TABLE shifts ALTER COLUMN a TYPE BIGINT")
    shared.sql("ALTER TABLE shifts RENAME COLUMN c TO renamed")
    before = bag(shared.read("starred").collect())
    planned = {row.table.name: row.reason for row in shared.plan("starred", "uses_ab")}
    assert planned == {"starred": "SOURCE_SCHEMA_CHANGED", "uses_ab": "CHANGED"}
    report = shared.refresh("starred", "uses_ab", on_error="report")
    assert report["starred"].reason == "SOURCE_SCHEMA_CHANGED"
    assert "default.shifts has no column c any more" in (report["starred"].error or "")
    assert bag(shared.read("starred").collect()) == before
    built = report["uses_ab"]
    assert (built.action, built.reason) == ("reinitialize", "SOURCE_SCHEMA_CHANGED")
    assert shared.read("uses_ab").dtypes == [("a", "bigint"), ("b", "int")]
    check(shared, "uses_ab")
    shared.sql("ALTER TABLE shifts RENAME COLUMN renamed TO c")
    shared.sql("ALTER TABLE shifts DROP COLUMN d")
    assert shared.refresh("starred", "uses_ab").ok
    assert bag(shared.read("starred").collect()) == bag([(1, 2, 3), (2, 3, 4)])


def test_a_source_is_its_table_id(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE reborn (a INT) USING delta")
    shared.sql("INSERT INTO reborn VALUES (1), (2)")
    shared.create("follows", "SELECT a FROM reborn")
    shared.sql("RESTORE TABLE reborn TO VERSION AS OF 0")
    assert shared.refresh("follows")["follows"].outcome == "done"
    assert shared.read("follows").collect() == []
    shared.sql("DROP TABLE reborn")
    report = shared.refresh("follows", on_error="report")
    assert report["follows"].reason == "UNKNOWN_SOURCE"
    assert "default.reborn" in (report["follows"].error or "")
    shared.sql("CREATE TABLE reborn USING delta AS SELECT 9 AS a")
    record = shared.refresh("follows")["follows"]
    assert (record.strategy, record.reason) == ("full", "SOURCE_REPLACED")
    check(shared, "follows")


def test_views_are_followed_and_a_changed_view_is_noticed(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE under_view USING delta AS SELECT explode(array(1, 5)) AS a")
    shared.sql("CREATE TABLE elsewhere USING delta AS SELECT 42 AS c")
    shared.sql("CREATE VIEW seen (b) AS SELECT a FROM under_view WHERE a > 2")
    shared.create("through", "SELECT b FROM seen")
    assert [str(source.name) for source in shared.show("through").definition.sources] == [
        "default.under_view"
    ]
    assert bag(shared.read("through").collect()) == bag([(5,)])
    shared.sql("CREATE OR REPLACE VIEW seen (b) AS SELECT c FROM elsewhere")
    assert [planned.reason for planned in shared.plan("through")] == ["VIEW_CHANGED"]
    record = shared.refresh("through")["through"]
    assert (record.reason, [pin.name.name for pin in record.pins]) == (
        "VIEW_CHANGED",
        ["elsewhere"],
    )
    assert bag(shared.read("through").collect()) == bag([(42,)])
    assert shared.refresh("through")["through"].reason == "NOT_MOVED"
    assert shared.verify("through").ok
    shared.sql("DROP VIEW seen")
    assert shared.refresh("through", on_error="report")["through"].reason == "UNKNOWN_SOURCE"


def test_views_are_kept_up_to_date_by_changes(shared: dt.DynamicTables) -> None:
    """A view over a view; one made under other settings is recomputed, and says so."""
    shared.sql("CREATE TABLE under_views (k INT, v INT) USING delta")
    shared.sql("CREATE VIEW positive (k, w) AS SELECT k, v FROM under_views WHERE v > 0")
    shared.sql("CREATE VIEW added AS SELECT k, sum(w) AS s FROM positive GROUP BY k")
    shared.create("over_views", "SELECT k, s, k + s AS t FROM added WHERE s < 100")
    shared.spark.conf.set("spark.sql.ansi.enabled", "false")
    shared.sql("CREATE VIEW lenient AS SELECT k, v + 1 AS w FROM under_views")
    shared.spark.conf.unset("spark.sql.ansi.enabled")
    shared.create("over_lenient", "SELECT k, w FROM lenient")
    shared.sql("INSERT INTO under_views VALUES (1, 2), (1, NULL), (NULL, 3), (2, -1), (3, 99)")
    report = shared.refresh("over_views", "over_lenient")
    assert report["over_views"].strategy in ("merge", "keys", "rows")
    assert report["over_lenient"].reason == "SQL_NOT_FAITHFUL"
    assert "spark.sql.ansi.enabled" in str(shared.explain("over_lenient"))
    shared.sql("UPDATE under_views SET v = 5 WHERE k = 3")
    report = shared.refresh("over_views", "over_lenient")
    assert report["over_views"].strategy in ("merge", "keys", "rows")
    check(shared, "over_views", "over_lenient")


def test_what_nobody_set_stays_as_it_was(shared: dt.DynamicTables) -> None:
    """Refreshes go by the time zone of CREATE, though it was a default then and is another now."""
    shared.sql("CREATE TABLE hours (at TIMESTAMP) USING delta")
    shared.create("days", "SELECT at, CAST(at AS DATE) AS day FROM hours")
    settings = shared.show("days").definition.settings
    assert settings["spark.sql.ansi.enabled"] == "true"
    zone = settings["spark.sql.session.timeZone"]
    shared.spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        shared.sql("INSERT INTO hours VALUES (TIMESTAMP '2024-06-01 12:00:00Z')")
        shared.refresh("days")
    finally:
        shared.spark.conf.unset("spark.sql.session.timeZone")
    assert shared.spark.conf.get("spark.sql.session.timeZone") == zone
    check(shared, "days")


def test_layout_work_is_no_change(shared: dt.DynamicTables) -> None:
    """On a source and on a target that another table reads."""
    shared.sql("CREATE TABLE laid (a INT) USING delta")
    shared.sql("INSERT INTO laid VALUES (1)")
    shared.sql("INSERT INTO laid VALUES (2)")
    shared.create("out", "SELECT a FROM laid", initialize="ON_SCHEDULE")
    shared.create("below", "SELECT a FROM out", initialize="ON_SCHEDULE")
    shared.refresh("out", "below")
    shared.sql("OPTIMIZE laid")
    shared.sql("VACUUM laid")
    shared.sql("OPTIMIZE DYNAMIC TABLE out")
    shared.spark.sql("ALTER TABLE out SET TBLPROPERTIES ('x' = 'y')")
    assert {r.reason for r in shared.refresh("out", "below").records} == {"NOT_MOVED"}
    assert bag(shared.read("out").collect()) == bag([(1,), (2,)])


def test_the_clock_is_pinned(open_lake: Callable[..., dt.DynamicTables]) -> None:
    """Rows enter and leave as time passes; never NOT_MOVED; verify uses the recorded instant."""
    now = [datetime(2026, 5, 1, 12, tzinfo=UTC)]
    tables = open_lake(clock=lambda: now[0])
    tables.sql("CREATE TABLE events (at TIMESTAMP, id INT) USING delta")
    tables.sql("INSERT INTO events VALUES ('2026-05-01 10:00:00Z', 1), ('2026-05-03 10:00:00Z', 2)")
    tables.create("past", "SELECT id, current_date AS today FROM events WHERE at < now()")
    assert bag(tables.read("past").select("id").collect()) == bag([(1,)])
    now[0] += timedelta(days=3)
    record = tables.refresh("past")["past"]
    assert (record.strategy, record.reason) == ("full", "TIME_IN_OUTPUT")
    assert bag(tables.read("past").select("id").collect()) == bag([(1,), (2,)])
    assert {str(row.today) for row in tables.read("past").collect()} == {"2026-05-04"}
    assert tables.verify("past").ok


def test_a_path_inside_the_lake_is_a_source(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE by_path USING delta AS SELECT 1 AS a")
    place = shared.sql("DESCRIBE DETAIL by_path").collect()[0].location
    query = f"SELECT p.a, n.a AS b FROM delta.`{place}` p JOIN by_path n ON p.a = n.a"
    report = shared.create("pathed", query).report
    assert report is not None
    assert len({pin.source_id for pin in report["pathed"].pins}) == 1  # two names, one table
    assert bag(shared.read("pathed").collect()) == bag([(1, 1)])


def test_a_column_that_comes_back_is_another_one(shared: dt.DynamicTables) -> None:
    """The change feed tells nothing of it: the rows are the same, their values are not."""
    mapped = "delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'name'"
    shared.sql(f"CREATE TABLE swapped (a INT, b INT) USING delta TBLPROPERTIES ({mapped})")
    shared.sql("INSERT INTO swapped VALUES (1, 10), (2, 20)")
    shared.create("of_columns", "SELECT a, b FROM swapped")
    shared.sql("ALTER TABLE swapped DROP COLUMN b")
    shared.sql("ALTER TABLE swapped ADD COLUMN b INT")
    record = shared.refresh("of_columns")["of_columns"]
    assert record.reason == "SOURCE_SCHEMA_CHANGED"
    check(shared, "of_columns")
