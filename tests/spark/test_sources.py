"""What happens to sources: schema changes, replacement, restoring, views, time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import dynamic_tables as dt
from oracle import bag, check

pytestmark = pytest.mark.spark


def test_added_column_goes_on_with_the_star_frozen(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE grows (a INT, b STRING) USING delta")
    shared.sql("INSERT INTO grows VALUES (1, 'x')")
    shared.create("starred", "SELECT * FROM grows")
    shared.sql("ALTER TABLE grows ADD COLUMN c INT")
    assert shared.refresh("starred")["starred"].reason == "NOT_MOVED"
    shared.sql("INSERT INTO grows VALUES (2, 'y', 3)")
    record = shared.refresh("starred")["starred"]
    assert record.outcome == "done"
    assert bag(shared.read("starred").collect()) == bag([(1, "x"), (2, "y")])
    assert shared.verify("starred").ok


def test_dropped_renamed_and_retyped_columns(shared: dt.DynamicTables) -> None:
    shared.sql(
        "CREATE TABLE shifts (a INT, b INT, c INT) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    shared.sql("INSERT INTO shifts VALUES (1, 2, 3)")
    shared.create("uses_ab", "SELECT a, b FROM shifts")
    shared.sql("ALTER TABLE shifts DROP COLUMN c")
    assert shared.refresh("uses_ab").ok  # c is not used
    shared.sql("ALTER TABLE shifts ALTER COLUMN a TYPE BIGINT")
    record = shared.refresh("uses_ab")["uses_ab"]
    assert (record.action, record.reason) == ("reinitialize", "SOURCE_SCHEMA_CHANGED")
    assert shared.read("uses_ab").dtypes == [("a", "bigint"), ("b", "int")]
    check(shared, "uses_ab")
    shared.sql("ALTER TABLE shifts RENAME COLUMN b TO renamed")
    before = bag(shared.read("uses_ab").collect())
    report = shared.refresh("uses_ab", on_error="report")
    assert report["uses_ab"].reason == "SOURCE_SCHEMA_CHANGED"
    with pytest.raises(dt.RefreshFailed, match=r"default\.uses_ab: a source no longer has"):
        shared.refresh("uses_ab")
    assert "`b`" in (report["uses_ab"].error or "")
    assert bag(shared.read("uses_ab").collect()) == before
    shared.sql("ALTER TABLE shifts RENAME COLUMN renamed TO b")
    assert shared.refresh("uses_ab").ok


def test_a_source_is_its_table_id(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE reborn (a INT) USING delta")
    shared.sql("INSERT INTO reborn VALUES (1), (2)")
    shared.create("follows", "SELECT a FROM reborn")
    shared.create("child_of", "SELECT r.a FROM reborn r JOIN follows f ON r.a = f.a")
    shared.sql("CREATE OR REPLACE TABLE reborn (a INT) USING delta")
    record = shared.refresh("follows")["follows"]
    assert (record.strategy, record.reason) == ("full", "SOURCE_REPLACED")
    shared.sql("DROP TABLE reborn")
    report = shared.refresh("follows", on_error="report")
    assert report["follows"].reason == "UNKNOWN_SOURCE"
    assert "default.reborn" in (report["follows"].error or "")
    shared.sql("CREATE TABLE reborn (a INT) USING delta")
    shared.sql("INSERT INTO reborn VALUES (9)")
    report = shared.refresh("child_of")  # its parent was built from a table that is gone
    assert [record.table.name for record in report.records] == ["follows", "child_of"]
    assert report["follows"].reason == "SOURCE_REPLACED"
    check(shared, "follows", "child_of")
    shared.sql("RESTORE TABLE reborn TO VERSION AS OF 0")
    assert shared.refresh("follows")["follows"].strategy == "full"
    check(shared, "follows")


def test_views_are_followed_and_a_changed_view_is_noticed(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE under_view (a INT) USING delta")
    shared.sql("INSERT INTO under_view VALUES (1), (5)")
    shared.sql("CREATE VIEW seen (b) AS SELECT a FROM under_view WHERE a > 2")
    shared.create("through", "SELECT b FROM seen")
    assert [str(source.name) for source in shared.show("through").definition.sources] == [
        "default.under_view"
    ]
    shared.sql("INSERT INTO under_view VALUES (7)")
    shared.refresh("through")
    assert bag(shared.read("through").collect()) == bag([(5,), (7,)])
    shared.sql("CREATE OR REPLACE VIEW seen (b) AS SELECT a FROM under_view WHERE a < 2")
    assert shared.refresh("through")["through"].reason == "VIEW_CHANGED"
    assert bag(shared.read("through").collect()) == bag([(1,)])
    assert shared.refresh("through")["through"].reason == "NOT_MOVED"
    assert shared.verify("through").ok
    shared.sql("CREATE TABLE elsewhere (c INT) USING delta")
    shared.sql("INSERT INTO elsewhere VALUES (42)")
    shared.sql("CREATE OR REPLACE VIEW seen (b) AS SELECT c FROM elsewhere")
    assert [planned.reason for planned in shared.plan("through")] == ["VIEW_CHANGED"]
    record = shared.refresh("through")["through"]
    assert (record.reason, [pin.name.name for pin in record.pins]) == (
        "VIEW_CHANGED",
        ["elsewhere"],
    )
    assert bag(shared.read("through").collect()) == bag([(42,)])
    shared.sql("DROP VIEW seen")
    assert shared.refresh("through", on_error="report")["through"].reason == "UNKNOWN_SOURCE"


def test_layout_work_is_no_change(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE laid (a INT) USING delta")
    shared.sql("INSERT INTO laid VALUES (1)")
    shared.sql("INSERT INTO laid VALUES (2)")
    shared.create("out", "SELECT a FROM laid")
    shared.create("below", "SELECT a FROM out")
    shared.sql("OPTIMIZE laid")
    shared.sql("VACUUM laid")
    shared.sql("OPTIMIZE DYNAMIC TABLE out")
    shared.spark.sql("VACUUM out")
    shared.spark.sql("ALTER TABLE out SET TBLPROPERTIES ('x' = 'y')")
    assert {r.reason for r in shared.refresh("out", "below").records} == {"NOT_MOVED"}
    check(shared, "out", "below")


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


def test_a_path_inside_the_lake_is_a_source(shared: dt.DynamicTables, tmp_path: Path) -> None:
    shared.sql("CREATE TABLE by_path (a INT) USING delta")
    shared.sql("INSERT INTO by_path VALUES (1)")
    place = shared.sql("DESCRIBE DETAIL by_path").collect()[0].location
    shared.create(
        "pathed", f"SELECT p.a, n.a AS b FROM delta.`{place}` p JOIN by_path n ON p.a = n.a"
    )
    shared.sql("INSERT INTO by_path VALUES (2)")
    record = shared.refresh("pathed")["pathed"]
    assert len({pin.source_id for pin in record.pins}) == 1  # two names, one table, one version
    assert bag(shared.read("pathed").collect()) == bag([(1, 1), (2, 2)])
