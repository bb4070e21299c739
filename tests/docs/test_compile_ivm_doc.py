"""The examples of docs/compile_ivm.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from duckdb_extensions import import_extension

import dynamic_tables as dt

TEXT = (Path(__file__).parents[2] / "docs" / "compile_ivm.md").read_text(encoding="utf-8")
DUCKDB, SPARK, NAMES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
EXPECTED = [("north", 2, 30), ("south", 1, 5)]


def test_the_duckdb_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    import_extension("ducklake")  # what the example says of the first time
    names: dict = {}
    exec(DUCKDB, names)
    rows = names["lake"].execute("SELECT * FROM dl.mv ORDER BY region").fetchall()
    names["lake"].close()
    assert rows == EXPECTED


@pytest.mark.spark
def test_the_spark_example(tables: dt.DynamicTables) -> None:
    exec(SPARK, {"spark": tables.spark})
    rows = tables.spark.sql("SELECT * FROM mv ORDER BY region").collect()
    assert [tuple(row) for row in rows] == EXPECTED


def test_the_names_example() -> None:
    names: dict = {"dt": dt}
    exec(NAMES, names)
    plan = dt.compile_ivm("SELECT a FROM t", naming=names["MyNames"]())
    assert "view_cursors" in plan.create_cursors_table
    assert "sales_by_region" in plan.create_mv


def test_every_field_and_parameter_is_documented() -> None:
    for field in dt.IVMPlan.__dataclass_fields__:
        assert f"`{field}`" in TEXT
    for parameter in dt.compile_ivm.__annotations__:
        assert parameter == "return" or parameter in TEXT
