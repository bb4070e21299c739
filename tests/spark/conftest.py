"""One lake per module where tests can share it: a lake costs little, loading tables costs much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dynamic_tables as dt


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dt.DynamicTables]:
    """A lake for all tests of a module; each test uses tables of its own."""
    tables = dt.connect(tmp_path_factory.mktemp("shared") / "lake", jvm="quick", say=lambda _: None)
    yield tables
    tables.close()
