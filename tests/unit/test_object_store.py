"""Row-group order without Spark on an object store: an emulator of S3 that knows conditions.

Commits are created only if they are absent, by a condition of the request (`If-None-Match`).
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.s3.exceptions import AccessForbidden
from moto.s3.models import S3Backend, s3_backends
from moto.server import ThreadedMotoServer
from obstore.exceptions import BaseError
from obstore.store import from_url
from plain_tables import Table, random_table

import dynamic_tables as dt
from dynamic_tables.lake.plain_delta import log
from dynamic_tables.lake.plain_delta.store import Store
from dynamic_tables.lake.row_groups import single

BUCKET = "lake"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """On loopback, at a port that is free."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> S3Backend:
    """The emulator's own memory; credentials come from the environment."""
    told = {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "something",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_METADATA_ENDPOINT": endpoint,  # nobody asks elsewhere for credentials
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    backend = s3_backends["123456789012"]["aws"]
    if BUCKET not in backend.buckets:
        backend.create_bucket(BUCKET, "us-east-1")
    return backend


def uploaded(root: Path) -> str:
    """A table that was made on local disk, in the store."""
    place = f"s3://{BUCKET}/{root.name}"
    store = from_url(place)
    for path in root.rglob("*"):
        if path.is_file():
            obstore.put(store, path.relative_to(root).as_posix(), path.read_bytes())
    return place


def names(place: str) -> set[str]:
    """Of all that lies below a place, rows and commits."""
    listed = from_url(place).list().collect()
    return {entry["path"] for entry in listed}


def pieces(place: str) -> tuple[dt.RorderItem, ...]:
    return dt.rorder_setup_multi(place, unique_by="key", only_conditional_writers=True)


def rows_of(place: str, table: Table) -> dict[str, Counter[str]]:
    """By the newest version's files, which all are in order."""
    found: dict[str, Counter[str]] = {}
    store = Store(place)
    for file in log.newest(store).files.values():
        with store.open(file.path) as opened:
            read = pq.read_table(opened)
        ids: list[Any] = [None] * read.num_rows
        if table.tracked:
            columns = [read.column(name).to_pylist() for name in ("_row-id", "_row-version")]
            ids = [*zip(*columns, strict=True)]
        kept = read.select([column.physical for column in table.columns]).to_pylist()
        values = json.dumps(file.partition_values, sort_keys=True)
        found.setdefault(values, Counter()).update(map(repr, zip(kept, ids, strict=True)))
    return found


def rows_before(table: Table) -> dict[str, Counter[str]]:
    return {values: rows for values, rows in table.rows_by_partition().items() if rows}


@pytest.mark.parametrize("seed", range(700, 706))
def test_random_tables(store: S3Backend, tmp_path: Path, seed: int) -> None:
    """Odd partition values, vectors, checkpoints: all is found, and lies where the log says."""
    table = random_table(tmp_path, seed)
    place = uploaded(tmp_path)
    for item in pieces(place):
        assert dt.rorder_single(item.as_json()).partitions[0].became == "ordered"
    assert rows_of(place, table) == rows_before(table)
    assert pieces(place) == ()
    assert not [name for name in names(place) if name.endswith("/")]  # no markers of folders


def plain(root: Path, rows: int = 40) -> Table:
    """One partition of one file."""
    table = Table(root, Random(5), "none", tracked=False)
    table.columns = [table.column("long", "key"), table.column("binary", "v")]
    table.commit([table.protocol(), table.metadata(), table.add({}, rows)])
    return table


def test_a_commit_is_created_only_if_it_is_absent(store: S3Backend, tmp_path: Path) -> None:
    plain(tmp_path)
    opened = Store(uploaded(tmp_path))
    assert opened.create("_delta_log/x", b"one")
    assert not opened.create("_delta_log/x", b"other")
    assert opened.read("_delta_log/x") == b"one"


def test_of_many_who_create_it_one_succeeds(store: S3Backend, tmp_path: Path) -> None:
    plain(tmp_path)
    opened = Store(uploaded(tmp_path))
    with ThreadPoolExecutor(8) as threads:
        made = [*threads.map(lambda n: opened.create("_delta_log/x", b"%d" % n), range(8))]
    assert made.count(True) == 1
    assert opened.read("_delta_log/x") == b"%d" % made.index(True)


def test_whoever_commits_in_the_last_moment_is_seen(
    store: S3Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says that the version is taken; the next one is ours, and what was added stays."""
    table = plain(tmp_path)
    place = uploaded(tmp_path)
    (item,) = pieces(place)
    table.commit([table.add({}, 3)])
    create, answers = Store.create, []

    def late(opened: Store, path: str, content: bytes) -> bool:
        if not answers:
            uploaded(tmp_path)
        answers.append(create(opened, path, content))
        return answers[-1]

    monkeypatch.setattr(Store, "create", late)
    report = dt.rorder_single(item)
    assert answers == [False, True]
    assert report.version == table.version + 1
    assert rows_of(place, table) == rows_before(table)


def test_an_upload_that_fails_is_given_up(
    store: S3Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file goes in parts. Neither parts nor files are left, and the table is as it was."""
    table = plain(tmp_path, rows=20)
    noise = pa.array([Random(n).randbytes(400_000) for n in range(20)], pa.binary())
    path = tmp_path / unquote(table.live[0]["action"]["path"])
    read = pq.read_table(path)
    pq.write_table(read.set_column(1, "v", noise), path)
    table.live[0]["action"].pop("stats", None)
    table.commit([{"add": table.live[0]["action"]}])
    place = uploaded(tmp_path)
    before = names(place)
    (item,) = pieces(place)
    asked = []

    def refused(*args: Any, **kwargs: Any) -> None:
        asked.append(len(store.buckets[BUCKET].multiparts))
        raise AccessForbidden("no more parts")

    with monkeypatch.context() as patched:
        patched.setattr(S3Backend, "upload_part", refused)
        with pytest.raises((OSError, BaseError)):
            dt.rorder_single(item)
    assert 1 in asked  # it was open then
    assert store.buckets[BUCKET].multiparts == {}
    assert names(place) == before
    assert dt.rorder_single(item).partitions[0].became == "ordered"


def test_files_go_if_rows_differ(
    store: S3Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(tmp_path)
    place = uploaded(tmp_path)
    before = names(place)
    (item,) = pieces(place)
    right = single._Work._sorted
    monkeypatch.setattr(single._Work, "_sorted", lambda *args: right(*args).slice(1))
    with pytest.raises(dt.InternalError, match="differs"):
        dt.rorder_single(item)
    assert names(place) == before
