"""Shared by all tests: lakes in temporary folders on one JVM per test process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

import dynamic_tables as dt
from postgres import Postgres

settings.register_profile("untimed", deadline=None)  # no test depends on how busy the machine is
settings.load_profile("untimed")

if find_spec("pandas") is None:
    sys.modules["pandas"] = None  # DuckDB looks for it with every value: it is not there


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, started by the first test that asks for it."""
    server = Postgres()
    yield server
    server.close()


@pytest.fixture
def open_lake(tmp_path: Path) -> Iterator[Callable[..., dt.DynamicTables]]:
    """Open lakes in the test's folder; a name opens the same lake again, as a new process would."""
    opened: list[dt.DynamicTables] = []

    def open_(name: str = "lake", **flags: object) -> dt.DynamicTables:
        tables = dt.connect(tmp_path / name, jvm="quick", say=lambda _: None, **flags)
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
    tables = dt.connect(tmp_path_factory.mktemp("shared") / "lake", jvm="quick", say=lambda _: None)
    yield tables
    tables.close()
