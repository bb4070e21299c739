"""Row-group order of Delta tables: who is refused, who wins, what readers see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from plain_tables import Table

import dynamic_tables as dt
from dynamic_tables.lake import catalog, jvm, snapshots
from dynamic_tables.lake.row_groups import committing, verifying
from dynamic_tables.lake.row_groups.files import PARTITION
from dynamic_tables.lake.row_groups.opening import name_of
from dynamic_tables.lake.row_groups.schemas import Schema
from dynamic_tables.lake.row_groups.stored_order import disorder
from dynamic_tables.lake.row_groups.table import RowGroupTable
from dynamic_tables.lake.row_groups.writing import Target
from dynamic_tables.layout.report import Became
from dynamic_tables.steps import LayoutStep, observing
from oracle import bag

pytestmark = pytest.mark.spark

PARTS = range(5)  # of the tables below: 0 is left in peace
STEPS = [step for step in LayoutStep if step is not LayoutStep.EXCHANGED]
MEANWHILE = {
    1: "INSERT INTO {t} VALUES (1, 99, 'came')",
    2: "UPDATE {t} SET v = 'other' WHERE p = 2 AND k = 1",
    3: "DELETE FROM {t} WHERE p = 3 AND k = 1",
    4: "OPTIMIZE {t} WHERE p = 4",
}


def make(tables: dt.DynamicTables, name: str, properties: str = "") -> str:
    """Five partitions of two files each, of three values each."""
    given = f"TBLPROPERTIES ({properties})" if properties else ""
    tables.sql(
        f"CREATE TABLE {name} (p INT, k INT, v STRING) USING delta PARTITIONED BY (p) {given}"
    )
    for _ in range(2):
        tables.sql(f"INSERT INTO {name} SELECT id % 5, id % 3, 'v' || id FROM range(60)")
    return name


def rows(tables: dt.DynamicTables, name: str) -> Any:
    return bag(tables.spark.table(name).collect())


def newest(tables: dt.DynamicTables, name: str) -> int:
    return tables.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0].version


def once(step: LayoutStep, act: Callable[[], None]) -> Callable[[LayoutStep, str], None]:
    left = [act]

    def observe(reached: LayoutStep, _table: str) -> None:
        if reached is step and left:
            left.pop()()

    return observe


def test_twice_is_once(shared: dt.DynamicTables) -> None:
    """What is in order stays; what is added makes its partition, and only it, be ordered anew."""
    make(shared, "twice")
    first = dt.rorder("twice", unique_by="K", sort_by="v", spark=shared.spark)
    assert [part.row_groups for part in first.partitions] == [3] * 5
    assert {part.files_after for part in first.partitions} == {1}
    again = dt.rorder("twice", unique_by="k", sort_by=["v"], spark=shared.spark)
    assert (again.version, {part.became for part in again.partitions}) == (None, {Became.AS_IT_WAS})
    shared.sql("INSERT INTO twice VALUES (3, 7, 'new')")
    third = dt.rorder("twice", unique_by="k", sort_by="v", spark=shared.spark)
    assert [part.partition for part in third.ordered] == [{"p": "3"}]
    assert third.ordered[0].values == 4
    other = dt.rorder("twice", unique_by="v", where="p IN (1, 2) AND p > 1", spark=shared.spark)
    assert [part.partition for part in other.partitions] == [{"p": "2"}]
    assert rows(shared, "twice").total() == 121
    assert shared.sql("SELECT count(*) FROM twice WHERE k = 7").collect() == [(1,)]
    [small] = dt.rorder(
        "twice", unique_by="k", where="p = 1", max_materialize_size=1, spark=shared.spark
    ).ordered
    assert small.row_groups == small.rows == 24


@pytest.mark.parametrize(("step", "vectors"), [*zip(STEPS, cycle(("true", "false")))])
def test_whoever_changes_rows_meanwhile_wins(
    shared: dt.DynamicTables, step: LayoutStep, vectors: str
) -> None:
    """Appends are kept; partitions that were changed or rewritten stay as they are then."""
    name = make(shared, f"meanwhile_{step}_{vectors}", f"delta.enableDeletionVectors = {vectors}")

    def everybody() -> None:
        for statement in MEANWHILE.values():
            shared.sql(statement.format(t=name))

    with observing(once(step, everybody)):
        report = dt.rorder(name, unique_by="k", spark=shared.spark)
    became = {part.partition["p"]: part.became for part in report.partitions}
    assert became == {
        "0": "ordered",
        "1": "ordered",
        "2": "changed",
        "3": "changed",
        "4": "changed",
    }
    found = rows(shared, name)
    assert found.total() == 120 + 1 - 8
    assert found["(1, 99, 'came')"] == 1
    assert len(shared.sql(f"SELECT * FROM {name} WHERE v = 'other'").collect()) == 8
    left = dt.rorder(name, unique_by="k", spark=shared.spark)
    assert {part.partition["p"] for part in left.ordered} == {"1", "2", "3", "4"}
    assert rows(shared, name) == found


def test_the_transaction_itself_sees_conflicts(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits between the last look at the table and our own: only the append is let pass."""
    name = make(shared, "race")
    operation, left = committing.optimizing, [MEANWHILE[part] for part in (2, 3, 4, 1)]

    def late(session: Any) -> Any:
        if left:
            shared.sql(left.pop(0).format(t=name))
        return operation(session)

    monkeypatch.setattr(committing, "optimizing", late)
    report = dt.rorder(name, unique_by="k", spark=shared.spark)
    assert report.version is not None
    assert left == []
    assert [part.partition["p"] for part in report.changed] == ["2", "3", "4"]
    assert rows(shared, name).total() == 120 + 1 - 8


def test_files_that_the_table_names_are_never_deleted(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its commit is taken for a failure, because the answer was lost."""
    make(shared, "answered")
    before, commit = rows(shared, "answered"), RowGroupTable.commit

    def lost(self: RowGroupTable, partitions: Any, new: Any, order: Any) -> committing.Committed:
        commit(self, partitions, new, order)
        numbers = frozenset(partition.number for partition in partitions)
        return committing.Committed(version=None, changed=numbers)

    monkeypatch.setattr(RowGroupTable, "commit", lost)
    dt.rorder("answered", unique_by="k", spark=shared.spark)
    assert rows(shared, "answered") == before


@pytest.mark.parametrize("step", STEPS)
def test_other_columns_end_the_attempt(shared: dt.DynamicTables, step: LayoutStep) -> None:
    name = make(shared, f"altered_{step}")

    def alter() -> None:
        shared.sql(f"ALTER TABLE {name} ADD COLUMN more INT")

    before, places = rows(shared, name), files(shared, name)
    with observing(once(step, alter)), pytest.raises(dt.Refused) as refused:
        dt.rorder(name, unique_by="k", spark=shared.spark)
    assert refused.value.reason == "COMMIT_FAILED"
    assert bag(shared.spark.table(name).drop("more").collect()) == before
    assert files(shared, name) == places


def test_numbers_that_are_given_meanwhile_alter_nothing(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE numbered (n BIGINT GENERATED ALWAYS AS IDENTITY, k INT) USING delta")
    insert = "INSERT INTO numbered (k) SELECT id % 3 FROM range(30)"
    shared.sql(insert)
    with observing(once(LayoutStep.WRITTEN, lambda: shared.sql(insert))):
        report = dt.rorder("numbered", unique_by="k", spark=shared.spark)
    assert [part.became for part in report.partitions] == ["ordered"]
    assert shared.sql("SELECT count(DISTINCT n) FROM numbered").collect() == [(60,)]


def test_the_order_of_another_column_under_the_name_does_not_count(
    shared: dt.DynamicTables,
) -> None:
    make(shared, "swapped", "delta.columnMapping.mode = 'name'")
    dt.rorder("swapped", unique_by="k", spark=shared.spark)
    before = unordered(shared, "swapped", "K"), unordered(shared, "swapped", "v")
    for old, new in (("k", "x"), ("v", "k"), ("x", "v")):
        shared.sql(f"ALTER TABLE swapped RENAME COLUMN {old} TO {new}")
    after = unordered(shared, "swapped", "k"), unordered(shared, "swapped", "v")
    assert (before, after) == ((0, 100), (100, 0))
    again = dt.rorder("swapped", unique_by="k", spark=shared.spark)
    assert len(again.ordered) == len(PARTS)
    assert unordered(shared, "swapped", "k") == 0


def unordered(tables: dt.DynamicTables, name: str, column: str) -> int:
    with jvm.active(tables.spark):
        log = catalog.log_of(tables.spark, name_of(name, tables.spark))
        return disorder(snapshots.newest_snapshot(tables.spark, log), column).percent


def files(tables: dt.DynamicTables, name: str) -> list[str]:
    return sorted(tables.spark.table(name).inputFiles())


def test_readers_of_changes_see_nothing(shared: dt.DynamicTables) -> None:
    name = make(shared, "quiet", "delta.enableChangeDataFeed = true")
    shared.create("follower", f"SELECT k, count(*) AS n FROM {name} GROUP BY k")
    report = dt.rorder(name, unique_by="k", spark=shared.spark)
    feed = shared.sql(f"SELECT * FROM table_changes('{name}', {report.version})")
    assert feed.collect() == []
    assert shared.refresh("follower")["follower"].strategy == "no_data"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("array(NULL, 1)", "array(1, NULL)"),
        ("array(1)", "array(1, NULL)"),
        ("array(array(1), array())", "array(array(), array(1))"),
        ("map('a', NULL, 'b', 1)", "map('a', 1, 'b', NULL)"),
        ("map('a', array(1, NULL))", "map('a', array(1))"),
        (
            "array(named_struct('x', 1, 'y', cast(NULL AS INT)))",
            "array(named_struct('x', cast(NULL AS INT), 'y', 1))",
        ),
        ("map('a', named_struct('x', parse_json('1')))", "map('a', named_struct('x', NULL))"),
    ],
)
def test_null_in_another_place_is_noticed(shared: dt.DynamicTables, one: str, other: str) -> None:
    kind = shared.sql(f"SELECT {one} AS v").schema["v"].dataType.simpleString()
    frames = [
        shared.sql(f"SELECT cast({value} AS {kind}) AS v, 3 AS {PARTITION}")
        for value in (one, other)
    ]
    columns = frames[0].select("v").schema
    assert verifying.differing(*frames, columns) == [3]
    assert verifying.differing(frames[1], frames[1], columns) == []


def test_rows_under_a_wrong_name_are_not_committed(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading back finds what a count would not; the table stays as it was."""
    shared.sql(
        "CREATE TABLE misnamed (k INT, s STRUCT<a: INT, b: INT>) USING delta"
        " TBLPROPERTIES (delta.columnMapping.mode = 'name')"
    )
    shared.sql("INSERT INTO misnamed SELECT id, named_struct('a', id, 'b', NULL) FROM range(3)")
    version, right = newest(shared, "misnamed"), Schema.as_stored

    def wrong(schema: Schema) -> list:
        key, pair = right(schema)
        names = [
            field.metadata["delta.columnMapping.physicalName"]
            for field in schema.columns[1].dataType
        ]
        turned = f"STRUCT<`{names[1]}`: INT, `{names[0]}`: INT>"
        return [key, pair.cast(turned).alias(schema.physical_name(schema.columns[1]))]

    monkeypatch.setattr(Schema, "as_stored", wrong)
    with pytest.raises(dt.InternalError, match="differ"):
        dt.rorder("misnamed", unique_by="k", spark=shared.spark)
    assert newest(shared, "misnamed") == version


def test_executors_that_cannot_write_are_told_of(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(shared, "closed")
    right = RowGroupTable._target

    def elsewhere(table: RowGroupTable, *arguments: Any) -> Target:
        return replace(right(table, *arguments), root="/proc/nowhere")

    monkeypatch.setattr(RowGroupTable, "_target", elsewhere)
    with pytest.raises(dt.DynamicTablesError, match="/proc/nowhere") as failed:
        dt.rorder("closed", unique_by="k", spark=shared.spark)
    assert failed.value.about == "default.closed"
    assert newest(shared, "closed") == 2


def test_object_stores_are_tried_before_the_work(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors write there with credentials of their own; without, nothing is sorted first."""
    make(shared, "remote")
    right, place = RowGroupTable._target, shared.sql("DESCRIBE DETAIL remote").collect()[0].location

    def remote(table: RowGroupTable, *arguments: Any) -> Target:
        return replace(right(table, *arguments), root=root)

    monkeypatch.setattr(RowGroupTable, "_target", remote)
    root = "file:///proc/nowhere"
    with pytest.raises(dt.Refused, match="engine='native'") as refused:
        dt.rorder("remote", unique_by="k", spark=shared.spark)
    assert refused.value.reason == "NO_PERMISSION"
    assert "/proc/nowhere" in refused.value.message
    assert newest(shared, "remote") == 2
    root = place.replace("file:", "file://")
    assert len(dt.rorder("remote", unique_by="k", spark=shared.spark).ordered) == 5
    assert not list(Path(place.removeprefix("file:")).glob("_dynamic_tables.probe*"))


def test_the_range_column_names_the_column(shared: dt.DynamicTables) -> None:
    shared.sql(
        "CREATE TABLE nodes (node INT, node_range INT) USING delta PARTITIONED BY (node_range)"
    )
    shared.sql("INSERT INTO nodes SELECT id % 6, id % 6 DIV 3 FROM range(60)")
    place = shared.sql("DESCRIBE DETAIL nodes").collect()[0].location
    report = dt.rorder(SimpleNamespace(table_uri=place), spark=shared.spark)  # as of deltalake
    assert (report.unique_by, [part.row_groups for part in report.partitions]) == ("node", [3, 3])


REFUSED = {
    "nothing says by which column": ({}, "BAD_COLUMNS"),
    "there is no column 'x'": ({"unique_by": "x"}, "BAD_COLUMNS"),
    "type double": ({"unique_by": "d"}, "BAD_COLUMNS"),
    "partition column 'p'": ({"unique_by": "p"}, "BAD_COLUMNS"),
    "sort_by names 's'": ({"unique_by": "k", "sort_by": "s"}, "BAD_COLUMNS"),
    "only partition columns": ({"unique_by": "k", "where": "p = 1 AND k = 1"}, "BAD_COLUMNS"),
    "subquery": ({"unique_by": "k", "where": "p IN (SELECT 1)"}, "BAD_COLUMNS"),
    "SYNTAX": ({"unique_by": "k", "where": "p = = 1"}, "SYNTAX"),
    "whole numbers from 1": ({"unique_by": "k", "values_per_row_group": 0}, "BAD_VALUE"),
    "'arrow' takes no rows_per_row_group": (
        {"unique_by": "k", "rows_per_row_group": 5},
        "CONTRADICTION",
    ),
    "'native' takes no values_per_row_group": (
        {"unique_by": "k", "engine": "native", "values_per_row_group": 5},
        "CONTRADICTION",
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_refused(shared: dt.DynamicTables, said: str) -> None:
    columns = "k INT, d DOUBLE, s STRUCT<a: INT>, p INT"
    shared.sql(f"CREATE TABLE IF NOT EXISTS strict ({columns}) USING delta PARTITIONED BY (p)")
    arguments, reason = REFUSED[said]
    with pytest.raises(dt.InvalidInput) as refused:
        dt.rorder("strict", **arguments, spark=shared.spark)
    assert refused.value.reason == reason
    assert said in str(refused.value)


def test_unknown_features_are_refused_by_name(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE clustered (k INT) USING delta CLUSTER BY (k)")
    with pytest.raises(dt.Refused, match="'clustering'"):
        dt.rorder("clustered", unique_by="k", spark=shared.spark)
    shared.sql("CREATE TABLE free (k INT, v VARIANT) USING delta")
    with pytest.raises(dt.Refused) as refused:
        dt.rorder("free", unique_by="k", spark=shared.spark)
    assert refused.value.reason == "TABLE_FEATURE"


@pytest.mark.parametrize("table", ["no_such_table", "/no/such/path", 7])
def test_what_is_no_table(shared: dt.DynamicTables, table: Any) -> None:
    with pytest.raises(dt.InvalidInput):
        dt.rorder(table, unique_by="k", spark=shared.spark)


def test_a_partition_whose_rows_have_all_gone_loses_its_files(
    shared: dt.DynamicTables, tmp_path: Path
) -> None:
    table = Table(tmp_path, Random(3), "none", False)
    table.columns, table.parts = [table.column("integer", "k")], {"p": "integer"}
    table.commit([table.protocol(), table.metadata()])
    table.commit([table.add({"p": "1"}, 0), table.add({"p": "2"}, 5)])
    report = dt.rorder(tmp_path, unique_by="k", spark=shared.spark)
    told = {part.partition["p"]: (part.became, part.files_after) for part in report.partitions}
    assert told == {"1": ("ordered", 0), "2": ("ordered", 1)}
    again = dt.rorder(tmp_path, unique_by="k", spark=shared.spark)
    assert [part.partition["p"] for part in again.partitions] == ["2"]


def test_an_empty_table_and_nothing_but_null(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE empty (k INT) USING delta")
    assert dt.rorder("empty", unique_by="k", spark=shared.spark).partitions == ()
    shared.sql("INSERT INTO empty VALUES (NULL), (NULL)")
    report = dt.rorder("empty", unique_by="k", spark=shared.spark)
    assert [(part.rows, part.values) for part in report.partitions] == [(2, 1)]
    assert shared.sql("SELECT * FROM empty WHERE k IS NULL").count() == 2
