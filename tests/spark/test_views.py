"""Views below dynamic tables mean what Spark says they mean: their functions, types, settings and
columns, also in the next process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import dynamic_tables as dt
from dynamic_tables.lake import jvm
from dynamic_tables.lake.sessions import RESULT_SETTINGS, result_settings, view_settings
from oracle import bag

pytestmark = pytest.mark.spark


def check(tables: dt.DynamicTables, name: str) -> None:
    """The table has the rows that Spark gives for its query."""
    query = tables.show(name).definition.query
    assert bag(tables.read(name).collect()) == bag(tables.spark.sql(query).collect()), name
    assert tables.verify(name).ok


@pytest.fixture
def in_default(shared: dt.DynamicTables) -> Iterator[dt.DynamicTables]:
    yield shared
    shared.spark.sql("USE default")


def test_functions_are_those_of_the_schema_of_the_view(in_default: dt.DynamicTables) -> None:
    """The same text under another current schema would call another function."""
    tables = in_default
    for schema, number in (("one", 1), ("two", 1000)):
        tables.sql(f"CREATE SCHEMA {schema}")
        tables.sql(f"CREATE FUNCTION {schema}.f(x INT) RETURNS INT RETURN x + {number}")
    tables.sql("CREATE TABLE one.t (a INT) USING delta")
    tables.sql("USE one")
    tables.sql("CREATE VIEW calling AS SELECT a, f(a) AS g FROM t")
    tables.sql("CREATE VIEW plain AS SELECT a, a + 1 AS g FROM t")
    tables.sql("USE two")
    tables.create("two.over_calling", "SELECT a, g FROM one.calling")
    tables.create("two.over_plain", "SELECT a, g FROM one.plain")
    tables.sql("INSERT INTO one.t VALUES (2)")
    report = tables.refresh("two.over_calling", "two.over_plain")
    assert report["two.over_calling"].reason == "SQL_NOT_FAITHFUL"
    assert report["two.over_plain"].strategy == "append"
    check(tables, "two.over_calling")
    check(tables, "two.over_plain")


def test_a_view_keeps_the_types_that_it_was_made_with(shared: dt.DynamicTables) -> None:
    """Unless it says WITH SCHEMA TYPE EVOLUTION."""
    shared.sql("CREATE TABLE typed (k INT) USING delta")
    shared.sql("CREATE VIEW cast AS SELECT k FROM typed")
    shared.sql("CREATE VIEW evolving WITH SCHEMA TYPE EVOLUTION AS SELECT k FROM typed")
    shared.sql("DROP TABLE typed")
    shared.sql("CREATE TABLE typed (k DOUBLE) USING delta")
    shared.sql("INSERT INTO typed VALUES (1.5), (1.2), (2.0)")
    for view in ("cast", "evolving"):
        shared.create(f"over_{view}", f"SELECT k, count(*) AS n FROM {view} GROUP BY k")
        check(shared, f"over_{view}")
    shared.sql("INSERT INTO typed VALUES (1.7)")
    for record in shared.refresh("over_cast", "over_evolving").records:
        assert record.strategy in ("merge", "keys"), record
    assert shared.show("over_cast").definition.columns[0].type == "INT"
    check(shared, "over_cast")
    check(shared, "over_evolving")


def test_settings_that_are_seldom_set(shared: dt.DynamicTables) -> None:
    """Of a view, and of the session that refreshes."""
    conf = shared.spark.conf
    shared.sql("CREATE TABLE seldom (a INT, b INT) USING delta")
    conf.set("spark.sql.function.concatBinaryAsString", "true")
    shared.sql("CREATE VIEW glued AS SELECT a, concat(X'41', X'42') AS j FROM seldom")
    conf.unset("spark.sql.function.concatBinaryAsString")
    shared.create("over_glued", "SELECT a, j FROM glued")
    shared.create("jsons", "SELECT to_json(struct(a, b)) AS j FROM seldom")
    conf.set("spark.sql.jsonGenerator.ignoreNullFields", "false")
    try:
        shared.sql("INSERT INTO seldom VALUES (1, NULL)")
        shared.refresh("over_glued", "jsons")
    finally:
        conf.unset("spark.sql.jsonGenerator.ignoreNullFields")
    check(shared, "over_glued")
    check(shared, "jsons")


def test_the_settings_of_a_view_are_sparks(shared: dt.DynamicTables) -> None:
    """What nobody set has the default that it had in the Spark that made the view."""
    spark = shared.spark
    shared.sql("CREATE VIEW told AS SELECT 1 AS a")
    metadata = jvm.session_catalog(spark).getTableMetadata(
        jvm.table_identifier(spark, "default", "told")
    )
    assert view_settings(spark, metadata) == result_settings(spark)
    assert view_settings(spark, metadata).keys() == set(RESULT_SETTINGS)

    class Old:
        """Spark 3 kept no ANSI with a view, and it was off."""

        viewSQLConfigs = staticmethod(lambda: jvm.scala_map(spark, jvm.java_map(spark, {})))  # noqa: N815
        createVersion = staticmethod(lambda: "3.5.1")  # noqa: N815

    assert view_settings(spark, Old())["spark.sql.ansi.enabled"] == "false"


def test_names_of_columns(shared: dt.DynamicTables) -> None:
    """Given by the query, and called the same but for their case."""
    shared.sql("CREATE TABLE named (a INT, b INT) USING delta")
    shared.sql(
        "CREATE VIEW two_as (p, q) AS SELECT n.a, m.b AS A FROM named n JOIN named m USING (a)"
    )
    shared.create("over_two_as", "SELECT * FROM two_as")
    shared.create("aliased", "SELECT z.k FROM two_as AS z(k, l)")
    shared.sql("INSERT INTO named VALUES (1, 2), (3, NULL)")
    shared.refresh("over_two_as", "aliased")
    check(shared, "over_two_as")
    check(shared, "aliased")


def test_stars_stay_as_they_were_in_the_next_process(
    open_lake: Callable[..., dt.DynamicTables],
) -> None:
    views = {"star": "", "renamed": " (x, y)", "evolving": " WITH SCHEMA EVOLUTION"}
    names = [f"over_{view}" for view in views]
    with open_lake() as tables:
        tables.sql("CREATE TABLE growing (a INT, b INT) USING delta")
        for view, words in views.items():
            tables.sql(f"CREATE VIEW {view}{words} COMMENT 'kept' AS SELECT * FROM growing")
            columns = "x, y" if view == "renamed" else "a, b"
            tables.create(f"over_{view}", f"SELECT {columns} FROM {view}")
        tables.sql("ALTER TABLE growing ADD COLUMN c INT")
        tables.sql("INSERT INTO growing VALUES (1, 2, 3)")
        tables.sql("SELECT * FROM evolving").collect()  # which lets Spark find the new column
        assert {record.strategy for record in tables.refresh().records} == {"append"}
        before = {view: tables.spark.table(view).schema for view in views}
        for name in names:
            check(tables, name)
    with open_lake() as tables:
        assert {view: tables.spark.table(view).schema for view in views} == before
        told = tables.sql("DESCRIBE TABLE EXTENDED star").collect()
        assert "kept" in {row.data_type for row in told}
        tables.sql("INSERT INTO growing VALUES (4, 5, 6)")
        assert {record.strategy for record in tables.refresh().records} == {"append"}
        for name in names:
            check(tables, name)


def test_our_own_view_has_the_types_of_what_is_stored(shared: dt.DynamicTables) -> None:
    """A source with other types: the table is built anew, and readers see it as it is."""
    shared.sql("CREATE TABLE retyped (k INT, x DECIMAL(10, 2)) USING delta")
    shared.sql("INSERT INTO retyped VALUES (1, 5.25)")
    shared.create("sums", "SELECT k, sum(x) AS s FROM retyped GROUP BY k")
    assert shared.show("sums").definition.auxiliary is not None  # so the name is a view
    for types, row in (("k INT, x DOUBLE", "1, 5.2567"), ("k STRING, x INT", "'one', 5")):
        shared.sql(f"CREATE OR REPLACE TABLE retyped ({types}) USING delta")
        shared.sql(f"INSERT INTO retyped VALUES ({row})")
        assert shared.refresh("sums")["sums"].reason == "SOURCE_SCHEMA_CHANGED"
        check(shared, "sums")


def test_a_star_over_a_view_with_more_columns_is_refused(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE wide (k INT, x INT) USING delta")
    shared.sql("CREATE VIEW starred AS SELECT k FROM wide")
    shared.create("all_of_it", "SELECT * FROM starred")
    shared.sql("CREATE OR REPLACE VIEW starred AS SELECT k, x FROM wide")
    record = shared.refresh("all_of_it", on_error="report")["all_of_it"]
    assert record.reason == "SOURCE_SCHEMA_CHANGED"
    assert "its result has the columns k, x instead of k" in (record.error or "")
    shared.sql("CREATE OR ALTER DYNAMIC TABLE all_of_it AS SELECT * FROM starred")
    assert shared.read("all_of_it").columns == ["k", "x"]
