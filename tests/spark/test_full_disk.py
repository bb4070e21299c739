"""A disk that fills up while Spark writes: one clear error, nothing half-made, then it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import dynamic_tables as dt
from small_disk import filled, mounted

pytestmark = pytest.mark.spark


def test_a_full_disk(tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "disk", size="16m") as disk,
        dt.connect(disk / "lake", jvm="quick", say=lambda _: None) as tables,
    ):
        query = "SELECT sha2(CAST(id AS STRING), 512) AS x FROM range(20000)"  # 2 MB
        tables.create("wide", query, initialize="ON_SCHEDULE")
        with filled(disk, left=400_000):
            with pytest.raises(dt.RefreshFailed) as caught:
                tables.refresh()
            assert caught.value.reason is dt.Reason.DISK_FULL
            assert (caught.value.exit_code, caught.value.about) == (3, "default.wide")
            assert "free some space" in (caught.value.hint or "")
            assert not tables.spark.catalog.tableExists("wide")
        assert tables.refresh().ok
        assert tables.read("wide").count() == 20_000
