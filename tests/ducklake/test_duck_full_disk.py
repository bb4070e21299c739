"""A disk that fills up during a refresh: one clear error, nothing half-made, then it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from duck_oracle import check_lake

import dynamic_tables as dt
from small_disk import filled

ROWS = 50_000


@pytest.mark.parametrize("left", [600_000, 100_000, 0])
def test_a_full_disk(small_disk: Path, left: int) -> None:
    """The rows do not fit, or not even what the store would say about it."""
    with dt.connect(f"ducklake:{small_disk / 'lake'}", say=lambda _: None) as tables:
        tables.sql("CREATE TABLE src AS SELECT 0 AS n")
        tables.create("long", f"SELECT md5(r.range::VARCHAR) AS x FROM src, range(n * {ROWS}) r")
        tables.create("wide", f"SELECT r.range AS x FROM src, range(n * {ROWS}) r")
        tables.sql("UPDATE src SET n = 1")
        before = tables.show("long").build
        with filled(small_disk, left=left):
            with pytest.raises(dt.RefreshFailed) as caught:
                tables.refresh()
            assert caught.value.reason is dt.Reason.DISK_FULL
            assert (caught.value.exit_code, caught.value.about) == (3, "main.long")
            assert "space" in (caught.value.hint or "")
            assert tables.read("long").collect() == []
            assert tables.show("long").build == before
            with pytest.raises(dt.DynamicTablesError) as caught:
                tables.create("made", f"SELECT md5(range::VARCHAR) AS x FROM range({ROWS}) r")
            assert caught.value.reason is dt.Reason.DISK_FULL
            assert len(tables.list()) == 2
        assert tables.refresh().ok
        check_lake(tables)
        assert len(tables.read("long").collect()) == ROWS
