"""What commits tell of themselves, before anything is read."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dynamic_tables.lake import commit_files
from dynamic_tables.lake.base import Commit
from dynamic_tables.lake.extent import Extent, extent_of
from dynamic_tables.lake.log import commits_between, only_removes

MB = 2**20
CLOCK = count()  # two writes may be in the same tick of the disk's


def merged(**rows: int) -> dict[str, str]:
    return {f"numTargetRows{how.capitalize()}": str(number) for how, number in rows.items()}


@pytest.mark.parametrize(
    ("operation", "metrics", "removes"),
    [
        ("WRITE", {"numOutputRows": "3"}, False),
        ("UPDATE", {"numUpdatedRows": "1"}, False),
        ("DELETE", {"numDeletedRows": "1"}, True),
        ("MERGE", merged(updated=0, deleted=2, inserted=0), True),
        ("MERGE", merged(updated=1, deleted=0, inserted=0), False),
        ("MERGE", {}, False),
        ("RESTORE", {}, False),
    ],
)
def test_rows_that_only_go(operation: str, metrics: dict[str, str], removes: bool) -> None:
    """What is not known may bring rows."""
    commit = Commit(version=1, operation=operation, changes_data=True, stamp=None, metrics=metrics)
    assert only_removes(commit) == removes


FILE = {"path": "a", "size": 1, "dataChange": True}


@pytest.mark.parametrize("operation", ["WRITE", "STREAMING UPDATE", "MERGE", "of another engine"])
@pytest.mark.parametrize(
    ("actions", "adds"),
    [
        ([{"add": FILE}], True),
        ([{"add": FILE}, {"remove": {**FILE, "path": "b"}}], False),
        ([{"remove": FILE}, {"add": {**FILE, "deletionVector": {"cardinality": 3}}}], False),
        ([{"add": FILE | {"dataChange": False}}, {"remove": FILE | {"dataChange": False}}], True),
        ([], True),
    ],
)
def test_files_tell_whether_rows_only_come(
    tmp_path: Path, operation: str, actions: list[dict[str, Any]], adds: bool
) -> None:
    assert extent(tmp_path, [did(operation, numOutputRows=1), *actions]).only_adds == adds


@pytest.mark.parametrize(
    ("parameters", "replaces"),
    [
        ({"mode": "Append"}, False),
        ({"mode": "Overwrite"}, True),
        ({"outputMode": "Append"}, False),
        ({"outputMode": "Complete"}, True),
    ],
)
def test_what_is_replaced_is_not_counted(
    tmp_path: Path, parameters: dict[str, str], replaces: bool
) -> None:
    """A stream in complete mode takes the place of all rows, and tells only those it wrote."""
    info = did("STREAMING UPDATE", numOutputRows=5)
    info["commitInfo"]["operationParameters"] = parameters
    found = extent(tmp_path, [info, {"add": FILE}])
    assert (found.replaced, found.rows) == (replaces, None if replaces else 5)


def extent(folder: Path, *commits: list[dict[str, Any]]) -> Extent:
    """What the log of a table with a change feed tells of some commits."""
    (folder / "_delta_log").mkdir()
    for version, actions in enumerate(commits, 1):
        lines = "\n".join(map(json.dumps, actions))
        (folder / f"_delta_log/{version:020d}.json").write_text(lines)
    span, session = (0, len(commits)), None  # a local log is read without Spark
    found = commits_between(session, str(folder), *span)  # ty: ignore[invalid-argument-type]
    return extent_of(session, str(folder), span, found, has_feed=True)  # ty: ignore[invalid-argument-type]


def did(operation: str, **metrics: int) -> dict[str, Any]:
    told = {name: str(number) for name, number in metrics.items()}
    return {"commitInfo": {"operation": operation, "operationMetrics": told}}


def test_marked_files_are_read_whole(tmp_path: Path) -> None:
    """Nobody wrote down which rows went: they are looked for in all rows of the file."""
    stats = json.dumps({"numRecords": 1_000_000})
    files = [{"path": str(n), "size": 10 * MB, "dataChange": True} for n in range(32)]
    marks = [{**file, "stats": stats, "deletionVector": {"cardinality": 3}} for file in files]
    actions = [{"remove": file} for file in files] + [{"add": file} for file in marks]
    found = extent(tmp_path, [did("DELETE", numDeletedRows=96), *actions])
    assert (found.rows, found.read_bytes, found.read_files) == (96, 320 * MB, 32)
    assert found.bytes < MB
    assert found.bytes + found.unchanged_bytes == 320 * MB


def test_the_files_of_a_feed_are_read_instead(tmp_path: Path) -> None:
    file = {"path": "a", "size": 10 * MB, "dataChange": True}
    fed = {"cdc": {"path": "c", "size": 100, "dataChange": False}}
    commit = [
        did("UPDATE", numUpdatedRows=1),
        {"remove": file},
        {"add": {**file, "path": "b"}},
        fed,
    ]
    found = extent(tmp_path, commit)
    assert (found.bytes, found.read_bytes, found.read_files) == (100, 100, 1)
    assert found.unchanged_bytes == 0


def test_many_commits_have_many_files(tmp_path: Path) -> None:
    commits = [
        [did("WRITE", numOutputRows=1), {"add": {"path": str(n), "size": 9, "dataChange": True}}]
        for n in range(100)
    ]
    found = extent(tmp_path, *commits)
    assert (found.rows, found.bytes, found.read_files) == (100, 900, 100)


def write(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    file = folder / f"_delta_log/{version:020d}.json"
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_text("\n".join(map(json.dumps, actions)))
    os.utime(file, ns=(0, next(CLOCK)))


def read(folder: Path, version: int) -> list[Any]:
    return [*commit_files.actions_of(None, str(folder), version)]  # ty: ignore[invalid-argument-type]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read."""
    parse, found = commit_files._parsed, []

    def seen(spark: Any, path: str) -> Any:
        found.append(path)
        return parse(spark, path)

    monkeypatch.setattr(commit_files, "_parsed", seen)
    commit_files._kept.clear()
    return found


def test_a_commit_is_read_once(tmp_path: Path, parsed: list[str]) -> None:
    write(tmp_path, 1, did("WRITE"))
    assert [read(tmp_path, 1) for _ in range(3)] == [[did("WRITE")]] * 3
    assert len(parsed) == 1


def test_a_commit_of_a_table_that_was_made_anew(tmp_path: Path, parsed: list[str]) -> None:
    """As long as the old one, and at the same place."""
    for operation in ("WRITE", "MERGE"):
        write(tmp_path, 1, did(operation))
        assert read(tmp_path, 1) == [did(operation)]
    (tmp_path / "_delta_log/00000000000000000001.json").unlink()
    with pytest.raises(FileNotFoundError):
        read(tmp_path, 1)
    assert len(parsed) == 2


def test_few_and_small_commits_are_kept(tmp_path: Path, parsed: list[str]) -> None:
    for version in range(commit_files.KEPT + 10):
        write(tmp_path, version, did("WRITE"))
        read(tmp_path, version)
        read(tmp_path, 0)  # who is asked for stays
    assert len(commit_files._kept) == commit_files.KEPT
    assert len(parsed) == commit_files.KEPT + 10
    read(tmp_path, 1)
    assert len(parsed) == commit_files.KEPT + 11
    write(tmp_path, 1, {"add": {"path": "x" * commit_files.KEPT_BYTES_AT_MOST}})
    assert [len(read(tmp_path, 1)) for _ in range(2)] == [1, 1]
    assert len(parsed) == commit_files.KEPT + 13
