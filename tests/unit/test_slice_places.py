"""Staged slices are cleared by several at once: each finds less than it looked for."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from dynamic_tables.errors import RefreshError
from dynamic_tables.lake import slices
from dynamic_tables.lake.slicing import Part


class JavaError(Py4JJavaError):
    """As py4j raises it, without a JVM."""

    def __init__(self, name: str) -> None:
        Exception.__init__(self, name)
        self.java_exception = f"{name}: no"

    def __str__(self) -> str:
        return str(self.java_exception)


class FakePath:
    """The few things of Hadoop's Path that are used."""

    def __init__(self, place: str | PurePosixPath) -> None:
        self.place = Path(place)

    def getName(self) -> str:  # noqa: N802
        return self.place.name

    def getParent(self) -> FakePath:  # noqa: N802
        return FakePath(self.place.parent)


class FakeFiles:
    """A file system whose folders may go between two calls."""

    def __init__(self, error: str = "", keeps: str = "") -> None:
        self.error, self.keeps = error, keeps

    def exists(self, path: FakePath) -> bool:
        return True if self.error else path.place.exists()

    def listStatus(self, path: FakePath) -> list[Any]:  # noqa: N802
        if self.error or not path.place.exists():
            raise JavaError(self.error or "java.io.FileNotFoundException")
        found = [FakePath(child) for child in path.place.iterdir()]
        return [SimpleNamespace(getPath=lambda child=child: child) for child in found]

    def delete(self, path: FakePath, deep: bool) -> bool:
        if not path.place.exists() or path.getName() == self.keeps:
            return False
        children = list(path.place.iterdir()) if path.place.is_dir() else []
        if children and not deep:
            raise JavaError("java.io.IOException")
        for child in children:
            self.delete(FakePath(child), deep=True)
        path.place.rmdir()
        return True


def on(files: FakeFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices.jvm, "hadoop_path", lambda _spark, place: (FakePath(place), files))


def clear(location: Path, up_to: int) -> None:
    definition: Any = SimpleNamespace(location=str(location), name="t")
    slices.clear_slices(None, definition, up_to)  # ty: ignore


def test_a_folder_that_goes_while_it_is_listed_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(FakeFiles("java.io.FileNotFoundException"), monkeypatch)
    clear(tmp_path, 3)
    on(FakeFiles("org.apache.hadoop.security.AccessControlException"), monkeypatch)
    with pytest.raises(Py4JJavaError):
        clear(tmp_path, 3)


def test_what_is_over_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(FakeFiles(), monkeypatch)
    clear(tmp_path, 3)  # nothing was ever staged
    folder = tmp_path / slices.FOLDER
    for number in ("1", "2", "3"):
        (folder / number / "keys").mkdir(parents=True)
    clear(tmp_path, 2)
    assert [found.name for found in folder.iterdir()] == ["3"]
    clear(tmp_path, 3)
    assert not folder.exists()


def test_what_cannot_be_deleted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local file system answers no, and raises nothing; the others are deleted all the same."""
    on(FakeFiles(keeps="1"), monkeypatch)
    folder = tmp_path / slices.FOLDER
    for number in ("1", "2"):
        (folder / number).mkdir(parents=True)
    with pytest.raises(RefreshError, match="cannot be deleted"):
        clear(tmp_path, 3)
    assert [found.name for found in folder.iterdir()] == ["1"]


def test_discard_leaves_the_folder_of_all_refreshes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another refresh may be listing it at this moment."""
    on(FakeFiles(), monkeypatch)
    place = tmp_path / slices.FOLDER / "7"
    for name in ("0-1", "0-2"):
        (place / name).mkdir(parents=True)
    lake: Any = SimpleNamespace()
    area: Any = SimpleNamespace(session=None)
    definition: Any = SimpleNamespace(location=str(tmp_path))
    slicer = slices.SparkSlicer(lake, area, definition, 7)
    slicer.discard(Part(location=str(place / "0-1"), rows=0, checksum=""))
    assert (place / "0-2").exists()
    slicer.discard(Part(location=str(place / "0-2"), rows=0, checksum=""))
    assert not place.exists()
    assert place.parent.exists()
    clear(tmp_path, 7)
    assert not place.parent.exists()
