"""A fresh store a test: SQLite and PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_builders import claimant, definition

from dynamic_tables.store import Claim, Store, open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def make_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Addresses of empty databases of one kind."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres").new_database
    numbers = itertools.count()
    return lambda: f"sqlite:///{tmp_path}/store{next(numbers)}.db"


@pytest.fixture
def url(make_url: Callable[[], str]) -> str:
    return make_url()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def table(store: Store) -> str:
    """The id of a table that exists and is not loaded."""
    store.create_table(definition())
    return definition().table_id


@pytest.fixture
def claim(store: Store, table: str) -> Claim:
    return store.claim(table, "refresh-1", claimant())
