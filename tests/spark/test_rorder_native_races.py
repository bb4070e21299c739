"""Spark's own writer while others commit: what is added stays, whatever else ends the run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dynamic_tables as dt
from dynamic_tables.lake.row_groups.native import NativeTable
from oracle import bag

pytestmark = pytest.mark.spark
PATIENCE_S = 60.0


def test_what_is_added_meanwhile_stays(
    shared: dt.DynamicTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = made(shared, "native_added")
    while_it_writes(shared, tmp_path, monkeypatch, lambda: commit(place, come(place)))
    before = bag(shared.spark.table("native_added").collect())
    report = order(shared, "native_added")
    found = bag(shared.spark.table("native_added").collect())
    assert (report.version, found.total()) == (3, 41)
    assert found - before == bag([(99, "came")])


def test_what_is_added_before_the_transaction_begins_stays(
    shared: dt.DynamicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame was made before; of one that kept to its version, Delta would remove the rest."""
    made(shared, "native_early")
    saved = NativeTable._saved

    def late(self: NativeTable, write: Any) -> None:
        shared.sql("INSERT INTO native_early VALUES (99, 'came')")
        saved(self, write)

    monkeypatch.setattr(NativeTable, "_saved", late)
    before = bag(shared.spark.table("native_early").collect())
    assert order(shared, "native_early").version == 3
    assert bag(shared.spark.table("native_early").collect()) - before == bag([(99, "came")])


def go(place: Path) -> list[dict[str, Any]]:
    path = actions(place, "add")[0]["path"]
    return [{"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}]


def alter(place: Path) -> list[dict[str, Any]]:
    [metadata] = actions(place, "metaData")
    columns = json.loads(metadata["schemaString"])
    columns["fields"].append({"name": "w", "type": "integer", "nullable": True, "metadata": {}})
    return [{"metaData": {**metadata, "schemaString": json.dumps(columns)}}]


@pytest.mark.parametrize("act", [go, alter])
def test_whoever_takes_files_or_alters_columns_ends_it(
    shared: dt.DynamicTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable
) -> None:
    name = f"native_{act.__name__}"
    place = made(shared, name)
    while_it_writes(shared, tmp_path, monkeypatch, lambda: commit(place, act(place)))
    with pytest.raises(dt.Refused) as refused:
        order(shared, name)
    assert refused.value.reason == "COMMIT_FAILED"
    assert shared.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0].version == 2


def test_whoever_puts_the_same_files_in_order_ends_it(
    shared: dt.DynamicTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both exchange the same files: if both were committed, all rows would be there twice."""
    place = made(shared, "native_twice")
    before = bag(shared.spark.table("native_twice").collect())
    [item] = dt.rorder_setup_multi(place, unique_by="k")
    while_it_writes(shared, tmp_path, monkeypatch, lambda: dt.rorder_single(item))
    with pytest.raises(dt.Refused) as refused:
        order(shared, "native_twice")
    assert refused.value.reason == "COMMIT_FAILED"
    assert bag(shared.spark.table("native_twice").collect()) == before


def made(tables: dt.DynamicTables, name: str) -> Path:
    tables.sql(f"CREATE TABLE {name} (k INT, v STRING) USING delta")
    tables.sql(f"INSERT INTO {name} SELECT /*+ REPARTITION(2) */ id % 5, 'v' || id FROM range(40)")
    return Path(tables.sql(f"DESCRIBE DETAIL {name}").collect()[0].location.removeprefix("file:"))


def order(tables: dt.DynamicTables, name: str) -> dt.RorderReport:
    return dt.rorder(
        name, unique_by="k", engine="native", rows_per_row_group=10, spark=tables.spark
    )


# Others, who need no Spark: it is kept busy meanwhile


def commits(place: Path) -> list[Path]:
    return sorted((place / "_delta_log").glob("*.json"))


def actions(place: Path, kind: str) -> list[dict[str, Any]]:
    lines = [line for path in commits(place) for line in path.read_text().splitlines()]
    return [found[kind] for found in map(json.loads, lines) if kind in found]


def come(place: Path) -> list[dict[str, Any]]:
    file = place / "came.parquet"
    pq.write_table(pa.table({"k": pa.array([99], pa.int32()), "v": ["came"]}), file)
    about = {"size": file.stat().st_size, "modificationTime": 1, "dataChange": True}
    return [{"add": {"path": file.name, "partitionValues": {}, **about}}]


def commit(place: Path, done: Sequence[dict[str, Any]]) -> None:
    info = {"timestamp": int(time.time() * 1000), "operation": "WRITE", "operationParameters": {}}
    path = place / "_delta_log" / f"{len(commits(place)):020}.json"
    lines = [json.dumps(action) for action in ({"commitInfo": info}, *done)]
    with path.open("x") as file:
        file.write("\n".join(lines))


def while_it_writes(
    tables: dt.DynamicTables,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[], object],
) -> None:
    """Somebody acts when the transaction has begun and its first job waits for a core."""
    context, saved = tables.spark.sparkContext, NativeTable._saved

    def meanwhile() -> None:
        try:
            until(lambda: len(context.statusTracker().getActiveJobsIds()) > 1)
            act()
        finally:
            (folder / "go").touch()

    def late(self: NativeTable, write: Any) -> None:
        holding = hold_all_cores(context, folder)
        with ThreadPoolExecutor(1) as others:
            acting = others.submit(meanwhile)
            try:
                saved(self, write)
            finally:
                acting.result()
                holding.join()

    monkeypatch.setattr(NativeTable, "_saved", late)


def hold_all_cores(context: Any, folder: Path) -> Thread:
    """Until a file `go` is there."""
    cores, place = context.defaultParallelism, str(folder)

    def hold(number: int) -> None:
        (Path(place) / f"held {number}").touch()
        while not (Path(place) / "go").exists():
            time.sleep(0.05)

    thread = Thread(target=lambda: context.parallelize(range(cores), cores).foreach(hold))
    thread.start()
    until(lambda: len([*folder.glob("held *")]) == cores)
    return thread


def until(fulfilled: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not fulfilled():
        assert time.monotonic() < end
        time.sleep(0.05)
