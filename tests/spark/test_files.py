"""Tables read by the list of their files are the tables that Delta reads."""

from __future__ import annotations

import pytest

import dynamic_tables as dt
from dynamic_tables.lake.files import rows_at
from listed import newest
from oracle import bag

pytestmark = pytest.mark.spark

TABLES = {
    "marked": "TBLPROPERTIES (delta.enableDeletionVectors = true)",
    "split": "PARTITIONED BY (k) TBLPROPERTIES (delta.columnMapping.mode = 'name')",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_list_of_files_reads_like_the_table(shared: dt.DynamicTables, name: str) -> None:
    shared.sql(f"CREATE TABLE {name} (k INT, v STRING) USING delta {TABLES[name]}")
    statements = (
        f"INSERT INTO {name} VALUES (1, 'a'), (1, 'a'), (2, NULL), (NULL, 'x y')",
        f"DELETE FROM {name} WHERE k = 2",
        f"ALTER TABLE {name} ADD COLUMN more INT",
        f"INSERT INTO {name} VALUES (4, 'd', 4)",
        f"OPTIMIZE {name}",
    )
    for number, statement in enumerate(statements):
        shared.sql(statement)
        if number in (1, 4):
            wanted = shared.spark.table(name)
            found = newest(shared, shared.spark, name)
            assert found.schema == wanted.schema
            assert bag(found.collect()) == bag(wanted.collect()), statement


def test_an_older_version_is_read_by_delta(shared: dt.DynamicTables) -> None:
    shared.sql("CREATE TABLE older (k INT) USING delta")
    shared.sql("INSERT INTO older VALUES (1)")
    shared.sql("INSERT INTO older VALUES (2)")
    place = shared.spark.sql("DESCRIBE DETAIL older").collect()[0].location
    states = [sorted(row.k for row in rows_at(shared.spark, place, n).collect()) for n in range(3)]
    assert states == [[], [1], [1, 2]]
