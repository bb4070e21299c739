"""Row-group order without Spark, on tables that Spark made and reads afterwards."""

from __future__ import annotations

import pytest
from random_tables import Wanted, false_statistics, rows, wanted

import dynamic_tables as dt

pytestmark = pytest.mark.spark


def place(tables: dt.DynamicTables, name: str) -> str:
    return tables.sql(f"DESCRIBE DETAIL {name}").collect()[0].location


def pieces(tables: dt.DynamicTables, table: Wanted) -> tuple[dt.RorderItem, ...]:
    return dt.rorder_setup_multi(
        place(tables, table.name),
        unique_by=table.key,
        sort_by=table.sort_by,
        values_per_row_group=table.values_per_row_group,
        max_row_group_bytes=table.max_row_group_bytes,
    )


@pytest.mark.parametrize("seed", range(100, 108))
def test_tables_of_spark(shared: dt.DynamicTables, seed: int) -> None:
    table = wanted(seed)
    for statement in table.statements:
        shared.sql(statement)
    before = rows(shared, table)
    reports = [dt.rorder_single(item.as_json()) for item in pieces(shared, table)]
    assert {part.became for report in reports for part in report.partitions} <= {"ordered"}
    assert sum(part.rows or 0 for report in reports for part in report.partitions) == before.total()
    assert rows(shared, table) == before
    assert false_statistics(shared, table) == []
    assert pieces(shared, table) == ()
    versions = [report.version for report in reports if report.version is not None]
    if table.feed and versions:
        feed = f"SELECT * FROM table_changes('{table.name}', {min(versions)}, {max(versions)})"
        assert shared.sql(feed).collect() == []
