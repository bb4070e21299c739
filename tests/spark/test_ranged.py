"""Tables with a range column: made from ranges or from rows, filled by Delta, put in order."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row

import dynamic_tables as dt
from dynamic_tables.lake.row_groups import ranged

pytestmark = pytest.mark.spark


def test_rows_find_their_range(shared: dt.DynamicTables) -> None:
    ends = dt.create_ranged_table(
        "nodes", "node INT, v DOUBLE", by="Node", ranges=[10, 20], spark=shared.spark
    )
    assert ends == [10, 20]
    frame = shared.spark.createDataFrame(
        [(n, 1.0) for n in (None, -5, 9, 10, 19, 20, 99)], "node INT, v DOUBLE"
    )
    dt.append("nodes", frame, spark=shared.spark)
    dt.append("nodes", [{"node": 11, "v": 2.0, "node_range": 7}], spark=shared.spark)
    found = shared.sql("SELECT node, node_range FROM nodes ORDER BY node").collect()
    assert [tuple(row) for row in found] == [
        (None, 0), (-5, 0), (9, 0), (10, 1), (11, 1), (19, 1), (20, 2), (99, 2),
    ]  # fmt: skip
    report = dt.rorder("nodes", spark=shared.spark)
    assert (report.unique_by, [part.values for part in report.partitions]) == ("node", [3, 3, 2])
    constraints = shared.sql("SHOW TBLPROPERTIES nodes").where("key LIKE 'delta.constraints.%'")
    assert "`node_range` = 1 AND `node` >= 10" in constraints.collect()[0].value
    with pytest.raises((PySparkException, Py4JJavaError), match="VIOLATE_CONSTRAINT"):
        shared.sql("INSERT INTO nodes (node, v, node_range) VALUES (1, 1, 2)")


def test_what_is_said_of_columns_is_kept(shared: dt.DynamicTables) -> None:
    said = (
        "n INT NOT NULL COMMENT 'the node''s', `odd-name` ARRAY<STRUCT<a: INT COMMENT 'in'>>,"
        " s STRUCT<b: STRING NOT NULL>, m MAP<STRING, INT>"
    )
    dt.create_ranged_table("said", said, by="n", ranges=[10], spark=shared.spark)
    wanted = shared.spark.createDataFrame([], said).schema
    found = shared.spark.table("said").schema
    assert found.json() == wanted.add(found["n_range"]).json()


def test_a_range_column_in_another_case(shared: dt.DynamicTables) -> None:
    shared.sql(
        "CREATE TABLE other_case (k INT, K_RANGE INT GENERATED ALWAYS AS (k % 2)) USING delta"
        " PARTITIONED BY (k_range)"
    )
    dt.append("other_case", [{"k": 7}], spark=shared.spark)
    assert shared.sql("SELECT k, k_range FROM other_case").collect() == [(7, 1)]
    report = dt.rorder("other_case", spark=shared.spark)
    assert [part.became for part in report.partitions] == ["ordered"]
    assert shared.sql("SELECT k, k_range FROM other_case").collect() == [(7, 1)]


def test_ranges_from_rows(shared: dt.DynamicTables) -> None:
    rows = shared.spark.sql("SELECT date_add(DATE '2020-01-01', int(id)) AS day FROM range(100)")
    ends = dt.create_ranged_table(
        "days", "day DATE", by="day", sample=rows, partitions=4, spark=shared.spark
    )
    assert ends == [date(2020, 1, 26), date(2020, 2, 20), date(2020, 3, 16)]
    dt.append("days", rows, spark=shared.spark)
    found = shared.sql("SELECT day_range, count(*) FROM days GROUP BY 1 ORDER BY 1").collect()
    assert [tuple(row) for row in found] == [(n, 25) for n in range(4)]


WRONG: dict[str, dict[str, Any]] = {
    "there is no column": {"by": "x", "ranges": [1]},
    "that rise": {"by": "k", "ranges": [2, 1]},
    "plain texts": {"by": "k", "ranges": [1.5]},
    "whole numbers": {"by": "k", "ranges": [1, "b"]},
    "decimals, dates": {"by": "k", "ranges": [1, None]},
    "either ranges or a sample": {"by": "k"},
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_refused(shared: dt.DynamicTables, said: str) -> None:
    with pytest.raises(dt.InvalidInput, match=said):
        dt.create_ranged_table("never", "k INT", **WRONG[said], spark=shared.spark)
    assert not shared.spark.catalog.tableExists("never")


def test_rows_that_do_not_fit(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE by_hand (k INT, k_range INT) USING delta PARTITIONED BY (k_range)")
    with pytest.raises(dt.Refused, match="not generated"):
        dt.append("by_hand", [{"k": 1}], spark=shared.spark)
    dt.create_ranged_table("narrow", "k INT, v INT", by="k", ranges=[1], spark=shared.spark)
    with pytest.raises(dt.InvalidInput, match="other columns than the table: v"):
        dt.append("narrow", [{"k": 1}], spark=shared.spark)
    large = shared.spark.sql("SELECT 3000000000 AS k, 1 AS v")
    with pytest.raises((PySparkException, Py4JJavaError), match="CAST_OVERFLOW"):
        dt.append("narrow", large, spark=shared.spark)
    assert shared.spark.table("narrow").count() == 0


def test_rows_without_values_take_the_tables_types(shared: dt.DynamicTables) -> None:
    columns = "k INT, v DOUBLE, d DECIMAL(9, 2), t STRING, a ARRAY<BIGINT>, s STRUCT<x: INT>"
    dt.create_ranged_table("gaps", columns, by="k", ranges=[10], spark=shared.spark)
    blank = {"v": None, "d": None, "t": None, "a": None, "s": None}
    dt.append("gaps", [{"k": 1, **blank}], spark=shared.spark)
    dt.append(
        "gaps", [Row(k=2, **blank | {"v": 2, "d": 3}), Row(k=None, **blank)], spark=shared.spark
    )
    dt.append("gaps", [(11, 1.5, None, "x", [1, None], {"x": None})], spark=shared.spark)
    dt.append("gaps", [], spark=shared.spark)
    found = shared.sql("SELECT * FROM gaps ORDER BY k").collect()
    assert [tuple(row) for row in found] == [
        (None, None, None, None, None, None, 0),
        (1, None, None, None, None, None, 0),
        (2, 2.0, 3, None, None, None, 0),
        (11, 1.5, None, "x", [1, None], Row(x=None), 1),
    ]
    for wrong in ({"k": 2**40}, {"k": 1.5}, {"t": 1}, {"s": {"y": 1}}):
        with pytest.raises(dt.InvalidInput) as caught:
            dt.append("gaps", [{"k": 1, **blank, **wrong}], spark=shared.spark)
        assert caught.value.reason is dt.Reason.BAD_VALUE
    for row in ((1, 2), {"k": 1}, {"k": 1, **blank, "z": 1}):
        with pytest.raises(dt.InvalidInput) as caught:
            dt.append("gaps", [row], spark=shared.spark)
        assert caught.value.reason is dt.Reason.BAD_COLUMNS
    assert shared.sql("SELECT count(*) FROM gaps").collect() == [(4,)]


def test_a_table_without_its_check_is_not_left_behind(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranged, "_check_sql", lambda *_: "no_such_column > 1")
    with pytest.raises(dt.InvalidInput, match="no_such_column"):
        dt.create_ranged_table("half", "n INT", by="n", ranges=[1], spark=shared.spark)
    assert not shared.spark.catalog.tableExists("half")
