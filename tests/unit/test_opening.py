"""Which table is meant by what is given, where no catalog is needed to tell."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_tables.lake.row_groups.opening import name_of

GIVEN = [
    (SimpleNamespace(table_uri="file:///tmp/my%20lake/t/"), "file:///tmp/my lake/t"),
    (SimpleNamespace(table_uri="s3://bucket/a%20b"), "s3://bucket/a%20b"),
    (Path("/tmp/my lake/t"), "/tmp/my lake/t"),
    (Path("t"), str(Path.cwd() / "t")),
    ("/tmp/a%20b", "/tmp/a%20b"),
]


@pytest.mark.parametrize(("given", "place"), GIVEN, ids=str)
def test_places(given: Any, place: str) -> None:
    name = name_of(given, None)  # ty: ignore[invalid-argument-type]
    assert (name.catalog, name.name) == ("", place)
