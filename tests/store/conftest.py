"""A fresh store a test: SQLite; PostgreSQL too if DYNAMIC_TABLES_TEST_POSTGRES names one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from store_builders import claimant, definition

from dynamic_tables.store import Claim, Store, open_store

POSTGRES = os.environ.get("DYNAMIC_TABLES_TEST_POSTGRES")  # postgresql://user@host/database


@pytest.fixture(params=["sqlite", *(["postgresql"] if POSTGRES else [])])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
        return
    assert POSTGRES is not None
    schema = f"test_{uuid.uuid4().hex}"
    server = create_engine(POSTGRES.replace("postgresql://", "postgresql+psycopg://"))
    with server.begin() as connection:
        connection.execute(text("CREATE SCHEMA " + schema))
    joint = "&" if "?" in POSTGRES else "?"
    yield f"{POSTGRES}{joint}options=-csearch_path%3D{schema}"
    with server.begin() as connection:
        connection.execute(text("DROP SCHEMA " + schema + " CASCADE"))
    server.dispose()


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
    return store.claim(table, "refresh-1", **claimant())
