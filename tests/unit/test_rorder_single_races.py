"""Row-group order without Spark: who wins, what is refused, what a lost answer costs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plain_tables import Table

import dynamic_tables as dt
from dynamic_tables.lake.plain_delta import log
from dynamic_tables.lake.plain_delta.columns import Columns
from dynamic_tables.lake.plain_delta.log import File
from dynamic_tables.lake.plain_delta.reading import Reader
from dynamic_tables.lake.plain_delta.store import Store
from dynamic_tables.lake.row_groups import single
from dynamic_tables.lake.row_groups.slices import slices_of
from dynamic_tables.lake.row_groups.swapping import as_added
from dynamic_tables.lake.row_groups.writing import NewFile
from dynamic_tables.steps import LayoutStep, observing

STEPS = [step for step in LayoutStep if step is not LayoutStep.EXCHANGED]


def made(root: Path, *, tracked: bool = False, seed: int = 7) -> Table:
    """Two partitions of two files each."""
    table = Table(root, Random(seed), "name", tracked)
    table.columns = [table.column("integer", "k"), table.column("string", "v")]
    table.parts = {"p": "integer"}
    table.commit([table.protocol(), table.metadata()])
    for _ in range(2):
        adds = [table.add({"p": part}, 20) for part in ("1", "-5")]
        table.commit([*adds, *([table.mark()] if tracked else [])])
    return table


def first(root: Path, **more: Any) -> dt.RorderItem:
    return dt.rorder_setup_multi(root, unique_by="k", **more)[0]


def rows(root: Path) -> Counter[str]:
    """All rows that the newest version has, by the product's own reader."""
    store = Store(str(root))
    snapshot = log.newest(store)
    reader = Reader(store, Columns("t", snapshot.metadata))
    found: Counter[str] = Counter()
    for file in snapshot.files.values():
        for batch in reader.rows(reader.source(file)):
            found.update(repr([file.partition_values, row]) for row in batch.to_pylist())
    return found


def once(step: LayoutStep, act: Callable[[], None]) -> Callable[[LayoutStep, str], None]:
    left = [act]

    def observe(reached: LayoutStep, _table: str) -> None:
        if reached is step and left:
            left.pop()()

    return observe


def append(table: Table) -> None:
    table.commit([table.add({"p": "1"}, 5), *([table.mark()] if table.tracked else [])])


def compact(table: Table) -> None:
    """Somebody else's rewrite of the partition."""
    for file in [f for f in table.live if f["action"]["partitionValues"] == {"p": "-5"}]:
        table.commit([{"remove": {**file["action"], "deletionTimestamp": 1}}])
        table.live.remove(file)
        break


def alter(table: Table) -> None:
    table.columns.append(table.column("double", "more"))
    table.commit([table.metadata()])


def upgrade(table: Table) -> None:
    wanted = table.protocol()
    wanted["protocol"]["writerFeatures"].append("rowLineage")
    table.commit([wanted])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("tracked", [False, True])
def test_what_is_added_meanwhile_stays(tmp_path: Path, step: LayoutStep, tracked: bool) -> None:
    table = made(tmp_path, tracked=tracked)
    before = rows(tmp_path)
    item = first(tmp_path)
    with observing(once(step, lambda: append(table))):
        report = dt.rorder_single(item)
    assert [part.became for part in report.partitions] == ["ordered"]
    assert report.version == table.version + 1
    after = rows(tmp_path)
    assert after.total() == before.total() + 5
    assert not before - after
    if tracked:
        ids = log.newest(Store(str(tmp_path))).highest_row_id
        assert ids == table.next_row - 1 + 40


def with_identity(table: Table, mark: int) -> dict[str, Any]:
    """The metadata of a table whose key is an identity column."""
    action = table.metadata()
    schema = json.loads(action["metaData"]["schemaString"])
    schema["fields"][0]["metadata"]["delta.identity.highWaterMark"] = mark
    action["metaData"]["schemaString"] = json.dumps(schema)
    return action


def test_numbers_that_are_given_meanwhile_alter_nothing(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.commit([with_identity(table, 40)])
    item, before = first(tmp_path), rows(tmp_path)

    def insert() -> None:
        table.commit([with_identity(table, 45), table.add({"p": "1"}, 5)])

    with observing(once(LayoutStep.WRITTEN, insert)):
        report = dt.rorder_single(item)
    assert [part.became for part in report.partitions] == ["ordered"]
    assert rows(tmp_path).total() == before.total() + 5


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("act", [Table.delete, compact])
def test_a_partition_that_was_changed_stays_as_it_is(
    tmp_path: Path, step: LayoutStep, act: Callable[[Table], None]
) -> None:
    table = made(tmp_path)
    item = first(tmp_path)
    seen: list[Any] = []

    def change() -> None:
        act(table)
        seen.append(rows(tmp_path))

    with observing(once(step, change)):
        report = dt.rorder_single(item)
    assert [part.became for part in report.partitions] == ["changed"]
    assert report.version is None
    assert rows(tmp_path) == seen[0]
    assert sum(1 for _ in tmp_path.rglob("part-*.parquet")) == 0  # what was written is gone
    again = dt.rorder_single(item)
    assert [part.became for part in again.partitions] == ["ordered"]
    assert rows(tmp_path) == seen[0]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("act", [alter, upgrade])
def test_other_columns_or_features_end_the_attempt(
    tmp_path: Path, step: LayoutStep, act: Callable[[Table], None]
) -> None:
    table = made(tmp_path)
    item = first(tmp_path)
    with observing(once(step, lambda: act(table))), pytest.raises(dt.Refused) as refused:
        dt.rorder_single(item)
    assert refused.value.reason == "COMMIT_FAILED"
    assert log.newest(Store(str(tmp_path))).version == table.version
    assert list(tmp_path.rglob("part-*.parquet")) == []


def test_a_commit_in_the_last_moment_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last look at the log and our own commit: append, append, then a deletion."""
    table = made(tmp_path)
    item, create, left = first(tmp_path), Store.create, [append, append, Table.delete]

    def late(self: Store, path: str, content: bytes) -> bool:
        if left:
            left.pop(0)(table)
        return create(self, path, content)

    monkeypatch.setattr(Store, "create", late)
    report = dt.rorder_single(item)
    assert [part.became for part in report.partitions] == ["changed"]
    assert rows(tmp_path).total() == sum(len(file["rows"]) for file in table.live)


def test_an_answer_that_was_lost_is_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that tries again by itself may meet its own commit."""
    table = made(tmp_path)
    before, item, create = rows(tmp_path), first(tmp_path), Store.create

    def twice(self: Store, path: str, content: bytes) -> bool:
        assert create(self, path, content)
        return create(self, path, content)

    monkeypatch.setattr(Store, "create", twice)
    report = dt.rorder_single(item)
    assert report.version == table.version + 1
    assert rows(tmp_path) == before


def test_too_many_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path)
    item, create = first(tmp_path), Store.create

    def late(self: Store, path: str, content: bytes) -> bool:
        append(table)
        return create(self, path, content)

    monkeypatch.setattr(Store, "create", late)
    with pytest.raises(dt.Held):
        dt.rorder_single(item)
    assert list(tmp_path.rglob("part-*.parquet")) == []


def test_rows_that_differ_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading back finds what a count would not."""
    table = made(tmp_path)
    item, sort = first(tmp_path), single._Work._sorted

    def wrong(self: single._Work, *arguments: Any) -> pa.Table:
        found = sort(self, *arguments)
        name = found.schema.names[1]
        return found.set_column(1, found.schema.field(1), found.column(name).slice(0)[::-1])

    monkeypatch.setattr(single._Work, "_sorted", wrong)
    with pytest.raises(dt.InternalError, match="differs"):
        dt.rorder_single(item)
    assert log.newest(Store(str(tmp_path))).version == table.version
    assert list(tmp_path.rglob("part-*.parquet")) == []


def test_row_ids_that_are_lost_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, tracked=True)
    item, sort = first(tmp_path), single._Work._sorted

    def wrong(self: single._Work, *arguments: Any) -> pa.Table:
        found = sort(self, *arguments)
        place = found.schema.names.index("_row-id")
        return found.set_column(place, "_row-id", pa.nulls(found.num_rows, pa.int64()))

    monkeypatch.setattr(single._Work, "_sorted", wrong)
    with pytest.raises(dt.InternalError, match="differs"):
        dt.rorder_single(item)


def test_a_reader_that_finds_the_wrong_column_is_noticed(tmp_path: Path) -> None:
    """What the log tells of a file must be what is read."""
    table = made(tmp_path)
    action = table.live[0]["action"]
    told = json.loads(table.statistics([*table.live[0]["rows"].values()]))
    told["nullCount"][table.columns[0].physical] += 1
    table.commit([{"add": {**action, "stats": json.dumps(told)}}])
    values = action["partitionValues"]["p"]
    items = dt.rorder_setup_multi(tmp_path, unique_by="k")
    item = next(item for item in items if item.partition["p"] == values)
    with pytest.raises(dt.Refused, match="NULLs were read"):
        dt.rorder_single(item)


def test_times_in_commits_rise(tmp_path: Path) -> None:
    table = made(tmp_path)
    wanted = table.metadata()
    wanted["metaData"]["configuration"]["delta.enableInCommitTimestamps"] = "true"
    ahead = 9_999_999_999_999
    table.commit([{"commitInfo": {"inCommitTimestamp": ahead}}, wanted])
    for number, item in enumerate(dt.rorder_setup_multi(tmp_path, unique_by="k"), 1):
        report = dt.rorder_single(item)
        path = tmp_path / log.commit_path(report.version or 0)
        info = json.loads(path.read_text(encoding="utf-8").splitlines()[0])["commitInfo"]
        assert info["inCommitTimestamp"] == ahead + number


def test_sums_of_hadoop_that_were_left_over_go(tmp_path: Path) -> None:
    """A reader of Hadoop would take the new commit for damaged."""
    table = made(tmp_path)
    left = tmp_path / "_delta_log" / f".{table.version + 1:020}.json.crc"
    left.write_bytes(b"crc\x00old")
    dt.rorder_single(first(tmp_path))
    assert not left.exists()


REFUSED_TABLES: dict[str, Callable[[Table], None]] = {
    "'rowLineage'": upgrade,
    "'clustering'": lambda table: _with_feature(table, "clustering"),
    "'catalogManaged'": lambda table: _with_feature(table, "catalogManaged"),
    "coordinatedCommits": lambda table: _with_property(
        table, "delta.coordinatedCommits.commitCoordinator-preview"
    ),
    "version 4": lambda table: _with_versions(table, 4),
    "is of type variant": lambda table: _with_column(table, "variant"),
}


def _with_feature(table: Table, name: str) -> None:
    wanted = table.protocol()
    wanted["protocol"]["writerFeatures"].append(name)
    table.commit([wanted])


def _with_property(table: Table, name: str) -> None:
    wanted = table.metadata()
    wanted["metaData"]["configuration"][name] = "x"
    table.commit([wanted])


def _with_versions(table: Table, reader: int) -> None:
    wanted = table.protocol()
    wanted["protocol"]["minReaderVersion"] = reader
    table.commit([wanted])


def _with_column(table: Table, kind: str) -> None:
    table.columns.append(table.column(kind))
    table.commit([table.metadata()])


@pytest.mark.parametrize("said", REFUSED_TABLES)
def test_what_is_not_known_is_refused_by_name(tmp_path: Path, said: str) -> None:
    table = made(tmp_path)
    item = first(tmp_path)
    REFUSED_TABLES[said](table)
    for attempt in (lambda: first(tmp_path), lambda: dt.rorder_single(item)):
        with pytest.raises(dt.Refused, match=said) as refused:
            attempt()
        assert refused.value.reason == "TABLE_FEATURE"


def test_files_of_the_old_calendar_are_refused(tmp_path: Path) -> None:
    table = Table(tmp_path, Random(1), "none", tracked=False)
    table.columns = [table.column("date", "k")]
    table.commit([table.protocol(), table.metadata(), table.add({}, 9)])
    path = tmp_path / unquote(table.live[0]["action"]["path"])
    read = pq.read_table(path)
    pq.write_table(read.replace_schema_metadata({"org.apache.spark.version": "2.4.0"}), path)
    with pytest.raises(dt.Refused, match="old calendar"):
        dt.rorder_single(first(tmp_path))


@pytest.mark.parametrize("kind", ["integer", {"type": "struct", "fields": [("x", "integer")]}])
def test_names_in_another_case_are_not_taken_for_missing_columns(tmp_path: Path, kind: Any) -> None:
    """Spark would find them; here they would be NULL."""
    table = Table(tmp_path, Random(1), "none", tracked=False)
    table.columns = [table.column("integer", "k"), table.column(kind, "v")]
    table.commit([table.protocol(), table.metadata(), table.add({}, 9)])
    path = tmp_path / unquote(table.live[0]["action"]["path"])
    read = pq.read_table(path)
    other = pa.struct([("X", pa.int32())]) if isinstance(kind, dict) else pa.int32()
    turned = pa.array([None] * 9, other)
    name = "v" if isinstance(kind, dict) else "V"
    pq.write_table(read.set_column(1, name, turned), path)
    with pytest.raises(dt.Refused, match="another case"):
        dt.rorder_single(first(tmp_path))


def test_times_without_a_zone_are_not_taken_for_instants(tmp_path: Path) -> None:
    table = Table(tmp_path, Random(1), "none", tracked=False)
    table.columns = [table.column("integer", "k"), table.column("timestamp", "v")]
    table.commit([table.protocol(), table.metadata(), table.add({}, 9)])
    path = tmp_path / unquote(table.live[0]["action"]["path"])
    read = pq.read_table(path, columns=["k"])
    pq.write_table(read.append_column("v", pa.nulls(9, pa.timestamp("us"))), path)
    with pytest.raises(dt.Refused, match="without a zone"):
        dt.rorder_single(first(tmp_path))


def test_files_without_ids_are_refused_where_columns_are_found_by_them(tmp_path: Path) -> None:
    table = Table(tmp_path, Random(1), "id", tracked=False)
    table.columns = [table.column("integer", "k")]
    table.commit([table.protocol(), table.metadata(), table.add({}, 9)])
    path = tmp_path / unquote(table.live[0]["action"]["path"])
    read = pq.read_table(path)
    pq.write_table(read.cast(pa.schema([(read.schema.names[0], pa.int32())])), path)
    with pytest.raises(dt.Refused, match="no ids"):
        dt.rorder_single(first(tmp_path))


def test_a_default_is_not_taken_for_null(tmp_path: Path) -> None:
    """Readers that know defaults find one in files that lack the column."""
    table = made(tmp_path)
    table.columns.append(table.column("integer", "more"))
    action = table.metadata()
    schema = json.loads(action["metaData"]["schemaString"])
    schema["fields"][2]["metadata"]["EXISTS_DEFAULT"] = "7"
    action["metaData"]["schemaString"] = json.dumps(schema)
    table.commit([action])
    with pytest.raises(dt.Refused, match="has a default"):
        dt.rorder_single(first(tmp_path))


def test_a_gap_in_the_log_is_no_version(tmp_path: Path) -> None:
    table = made(tmp_path)
    append(table)
    (tmp_path / log.commit_path(table.version - 1)).unlink()
    with pytest.raises(dt.Refused, match="lacks version"):
        first(tmp_path)


def test_a_damaged_deletion_vector_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path)
    while not list(tmp_path.rglob("*.bin")):
        table.delete()
    for path in tmp_path.rglob("*.bin"):
        content = bytearray(path.read_bytes())
        content[-6] ^= 1
        path.write_bytes(content)
    items = dt.rorder_setup_multi(tmp_path, unique_by="k")
    with pytest.raises(dt.Refused, match="deletion vector"):
        [dt.rorder_single(item) for item in items]


def test_another_table_in_the_same_place(tmp_path: Path) -> None:
    table = made(tmp_path)
    item = first(tmp_path)
    table.id = "another"
    table.commit([table.metadata()])
    with pytest.raises(dt.Refused, match="another table"):
        dt.rorder_single(item)


@pytest.mark.parametrize("others", [{}, {"q": "integer"}, {"p": "integer", "q": "string"}])
def test_a_table_that_was_overwritten_with_other_partitions(
    tmp_path: Path, others: dict[str, str]
) -> None:
    """It keeps its id: what lay in the queue is for partitions that are no more."""
    table = made(tmp_path)
    item = first(tmp_path)
    gone = [{"remove": {**file["action"], "deletionTimestamp": 1}} for file in table.live]
    table.parts = others
    table.commit([table.metadata(), *gone])
    table.live.clear()
    with pytest.raises(dt.Refused, match="another table") as refused:
        dt.rorder_single(item)
    assert refused.value.reason == "SOURCE_REPLACED"


def emptied(root: Path) -> None:
    for place in root.iterdir():
        shutil.rmtree(place) if place.is_dir() else place.unlink()


@pytest.mark.parametrize("step", [LayoutStep.VERIFIED, LayoutStep.LOCKED])
@pytest.mark.parametrize("commits", [None, 0, 6])
def test_a_table_that_is_replaced_meanwhile_is_left_alone(
    tmp_path: Path, step: LayoutStep, commits: int | None
) -> None:
    """Deleted, or made anew with fewer or more versions than were read."""
    made(tmp_path)
    item, wanted = first(tmp_path), Counter[str]()

    def replace() -> None:
        emptied(tmp_path)
        if commits is not None:
            other = made(tmp_path, seed=8)
            for _ in range(commits):
                append(other)
            if not commits:
                (tmp_path / log.commit_path(other.version)).unlink()
            wanted.update(rows(tmp_path))

    with observing(once(step, replace)), pytest.raises((dt.Refused, dt.InvalidInput)):
        dt.rorder_single(item)
    if commits is None:
        assert not list(tmp_path.rglob("*.json"))
    else:
        assert rows(tmp_path) == wanted


def test_a_commit_that_was_overwritten_is_read_again(tmp_path: Path) -> None:
    """As Spark may do on local disk: another commit under the number that was read last."""
    table = made(tmp_path)
    item = first(tmp_path)

    def overwrite() -> None:
        table.version -= 1
        table.commit([])  # the rows of the second commit never came

    with observing(once(LayoutStep.VERIFIED, overwrite)):
        report = dt.rorder_single(item)
    assert [part.became for part in report.partitions] == ["changed"]
    assert rows(tmp_path).total() == 40


def test_a_listing_with_a_hole_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, listed = made(tmp_path), Store.log_names
    holes = [f"{table.version - 1:020}.json"]

    def with_hole(store: Store) -> list[str]:
        hole = holes.pop() if holes else None
        return [name for name in listed(store) if name != hole]

    monkeypatch.setattr(Store, "log_names", with_hole)
    assert log.newest(Store(str(tmp_path))).version == table.version
    assert not holes


def test_absolute_paths_are_one_file_in_any_spelling(tmp_path: Path) -> None:
    table = made(tmp_path)
    action = table.add({"p": "1"}, 20)
    place = tmp_path / action["add"]["path"]
    table.commit([{"add": {**action["add"], "path": f"file:{place}"}}])
    assert rows(tmp_path).total() == 100
    table.commit([{"remove": {"path": f"file://{place}", "dataChange": True}}])
    assert rows(tmp_path).total() == 80


def test_sidecars_are_found_by_any_path(tmp_path: Path) -> None:
    table = made(tmp_path)
    logs = tmp_path / "_delta_log"
    while not (found := list(logs.glob("*.checkpoint.*.json"))):
        emptied(logs)
        table.checkpoint()
    place = logs / "_sidecars"
    top = found[0].read_text(encoding="utf-8")
    named = next(iter(place.iterdir())).name
    found[0].write_text(top.replace(f'"{named}"', f'"{(place / named).as_uri()}"'))
    assert rows(tmp_path).total() == 80


def test_a_colon_is_no_scheme() -> None:
    """Java takes what stands before a plain one for the scheme of a URI."""
    file = NewFile(**{field.name: 0 for field in fields(NewFile)} | {"path": "p=a:b/f"})
    assert as_added(file, {}, "tag")["path"] == "p=a%3Ab/f"


def test_rows_that_pack_well_are_read_in_slices(tmp_path: Path) -> None:
    """One long text a thousand times: few bytes in the file, many in memory."""
    table = made(tmp_path)
    (file, *_), key = table.live, table.columns[0].physical
    path = tmp_path / unquote(file["action"]["path"])
    read = pq.read_table(path)
    texts = pa.array(["x" * 1000] * 5_000)
    numbers = pa.array(range(5_000), read.schema.field(0).type)
    pq.write_table(pa.Table.from_arrays([numbers, texts], schema=read.schema), path)
    store = Store(str(tmp_path))
    reader = Reader(store, Columns("t", log.newest(store).metadata))
    source = reader.source(File.of({**file["action"], "stats": None}))
    assert source.bytes < 100_000
    assert len(slices_of(reader, [source], key, 2_000_000)) > 5


def test_items_go_through_queues(tmp_path: Path) -> None:
    """As text, as bytes, as what JSON makes of it; and the same twice is done once."""
    made(tmp_path)
    one, other = dt.rorder_setup_multi(tmp_path, unique_by="k", sort_by="v")
    text = json.dumps(one.as_json())
    assert dt.RorderItem.of(text) == dt.RorderItem.of(text.encode()) == one
    done = dt.rorder_single(json.loads(text))
    again = dt.rorder_single(text)
    assert [r.partitions[0].became for r in (done, again)] == ["ordered", "as_it_was"]
    assert done.partitions[0].partition == one.partition
    assert dt.rorder_setup_multi(tmp_path, unique_by="k", sort_by="v") == (other,)
    for bad in ("{}", "[1]", "no json", {"table": "x"}):
        with pytest.raises(dt.InvalidInput):
            dt.rorder_single(bad)


@pytest.mark.parametrize(
    ("table", "reason"),
    [("orders", "BAD_NAME"), (7, "BAD_NAME"), ("/no/such/place", "UNKNOWN_SOURCE")],
)
def test_what_is_no_table(table: Any, reason: str) -> None:
    with pytest.raises(dt.InvalidInput) as refused:
        dt.rorder_setup_multi(table, unique_by="k")
    assert refused.value.reason == reason


@pytest.mark.parametrize("place", ["s3a://bucket/orders", "S3://bucket/orders"])
def test_s3_wants_a_promise(place: str, tmp_path: Path) -> None:
    with pytest.raises(dt.Refused) as refused:
        dt.rorder_setup_multi(place, unique_by="k")
    assert refused.value.reason == "NO_EXCLUSION"
    made(tmp_path)
    with pytest.raises(dt.Refused) as refused:  # nor does the piece itself go without it
        dt.rorder_single({**first(tmp_path).as_json(), "table": place.lower()})
    assert refused.value.reason == "NO_EXCLUSION"


def test_a_secret_in_a_uri_is_not_told() -> None:
    with pytest.raises(dt.InvalidInput) as refused:
        dt.rorder_setup_multi("s3://key:secret@bucket/t", unique_by="k")
    assert "secret" not in str(refused.value)


RACER = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
import dynamic_tables as dt
sys.stdin.readline()
for item in dt.rorder_setup_multi(sys.argv[1], unique_by="k", sort_by="v"):
    print(dt.rorder_single(item).partitions[0].became, flush=True)
"""


def test_processes_race_without_pyspark(tmp_path: Path) -> None:
    """Each one wants all partitions; every partition is written by one of them, no row is lost."""
    made(tmp_path)
    before = rows(tmp_path)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    told = [racer.communicate(timeout=120) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0], told
    became = Counter(word for out, _ in told for word in out.split())
    assert became["ordered"] == 2
    assert set(became) <= {"ordered", "changed", "as_it_was"}
    assert rows(tmp_path) == before


VICTIM = """
import os, signal, sys
import dynamic_tables as dt
from dynamic_tables.steps import observing

def observe(step, table):
    if step == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

with observing(observe):
    dt.rorder_single(dt.rorder_setup_multi(sys.argv[1], unique_by="k")[0])
"""


def test_kill_at_every_step(tmp_path: Path) -> None:
    """The table is as it was, or done; nobody who comes later waits for the dead."""
    victims = {}
    for step in LayoutStep:
        root = tmp_path / step
        table = made(root)
        command = [sys.executable, "-c", VICTIM, str(root), step.value]
        victims[step] = (root, table, rows(root), subprocess.Popen(command))
    for step, (root, table, before, victim) in victims.items():
        assert victim.wait(timeout=120) == -9
        done = step is LayoutStep.EXCHANGED
        assert log.newest(Store(str(root))).version == table.version + done
        assert rows(root) == before
        became = {dt.rorder_single(i).partitions[0].became for i in pieces(root)}
        assert became == {"ordered"}
        assert rows(root) == before


def pieces(root: Path) -> tuple[dt.RorderItem, ...]:
    return dt.rorder_setup_multi(root, unique_by="k")
