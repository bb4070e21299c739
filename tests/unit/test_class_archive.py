"""One process makes the archive, later ones use it, nobody waits for it."""

from __future__ import annotations

import os
from pathlib import Path

from dynamic_tables.lake.class_archive import GIVEN_UP_S, KEPT, SETTLED_S, ClassArchive


def archive(folder: Path, *class_path: str) -> ClassArchive:
    return ClassArchive(folder, java="17 /usr/bin/java", class_path=class_path)


def grow(folder: Path, text: str, *, age_s: float) -> None:
    """What a JVM does when it ends, some time ago."""
    (made,) = folder.glob("*.new")
    made.write_text(text)
    then = made.stat().st_mtime - age_s
    os.utime(made, (then, then))


def test_made_once_and_used_when_it_has_settled(tmp_path: Path) -> None:
    assert "ArchiveClassesAtExit" in archive(tmp_path).java_option()
    assert archive(tmp_path).java_option() == ""
    grow(tmp_path, "classes", age_s=1)
    assert archive(tmp_path).java_option() == ""
    grow(tmp_path, "classes", age_s=SETTLED_S + 1)
    assert "SharedArchiveFile" in archive(tmp_path).java_option()


def test_who_was_killed_does_not_keep_others_from_it(tmp_path: Path) -> None:
    archive(tmp_path).java_option()
    grow(tmp_path, "", age_s=GIVEN_UP_S + 1)
    assert "ArchiveClassesAtExit" in archive(tmp_path).java_option()


def test_another_class_path_has_another_archive(tmp_path: Path) -> None:
    for number in range(KEPT + 2):
        assert "ArchiveClassesAtExit" in archive(tmp_path, f"{number}.jar").java_option()
        grow(tmp_path, "classes", age_s=10 * SETTLED_S)
        assert "SharedArchiveFile" in archive(tmp_path, f"{number}.jar").java_option()
    assert len(list(tmp_path.iterdir())) == KEPT


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert archive(tmp_path / "file" / "cache").java_option() == ""
