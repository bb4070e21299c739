"""Lakes on DuckDB in temporary folders: no JVM, no pyspark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dynamic_tables as dt
from small_disk import mounted


@pytest.fixture
def open_lake(tmp_path: Path) -> Iterator[Callable[..., dt.DynamicTables]]:
    """Open lakes in the test's folder; a name opens the same lake again."""
    opened: list[dt.DynamicTables] = []

    def open_(name: str = "lake", **flags: object) -> dt.DynamicTables:
        tables = dt.connect(f"ducklake:{tmp_path / name}", say=lambda _: None, **flags)
        tables.sql("SET threads = 1")  # for a few rows, more threads cost more than they give
        opened.append(tables)
        return tables

    yield open_
    for tables in opened:
        tables.close()


@pytest.fixture
def tables(open_lake: Callable[..., dt.DynamicTables]) -> dt.DynamicTables:
    """An empty lake."""
    return open_lake()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dt.DynamicTables]:
    """A lake for all tests of a module; each test uses tables of its own."""
    folder = tmp_path_factory.mktemp("shared") / "lake"
    tables = dt.connect(f"ducklake:{folder}", say=lambda _: None)
    tables.sql("SET threads = 1")
    yield tables
    tables.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", size="24m") as disk:
        yield disk
