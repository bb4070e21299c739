"""The classes that a JVM has loaded, kept for later starts, which then take half the time.

A JVM writes the archive when it ends, and later ones map it. It fits one Java and one class path,
so its name is made of them. One process at a time makes it: the file it will become is created
empty as a mark, and is taken into use once it has content that no longer changes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SETTLED_S = 30.0  # what was written to this recently may be incomplete
GIVEN_UP_S = 6 * 3600.0  # a mark this old was left by a process that was killed
KEPT = 3  # archives of so many installations; one takes 200 MB


class ClassArchive:
    """The archive of one Java and one class path, in a folder that processes share."""

    def __init__(self, folder: Path, *, java: str, class_path: Sequence[str]) -> None:
        fits = hashlib.sha256("\n".join([java, *class_path]).encode()).hexdigest()[:12]
        self.path = folder / f"classes-{fits}.jsa"
        self._made = folder / f"{self.path.name}.new"

    def java_option(self) -> str:
        """Use the archive, or make it, or nothing while another process makes it."""
        self.adopt(settled_s=SETTLED_S)
        with suppress(OSError):  # a cache that cannot be written is no reason not to start
            if self.path.exists():
                os.utime(self.path)
                return f'"-XX:SharedArchiveFile={self.path}"'
            self._made.parent.mkdir(parents=True, exist_ok=True)
            self._made.touch(exist_ok=False)
            return f'"-XX:ArchiveClassesAtExit={self._made}"'
        return ""

    def adopt(self, *, settled_s: float = 0.0) -> None:
        """Take a finished archive into use; `settled_s` = 0 is for who saw its JVM end."""
        with suppress(OSError):  # there is none, or another process was faster
            state = self._made.stat()
            age = time.time() - state.st_mtime
            if state.st_size and age >= settled_s:
                self._made.replace(self.path)
                os.utime(self.path)
                self._remove_unused()
            elif not state.st_size and age > GIVEN_UP_S:
                self._made.unlink()

    def _remove_unused(self) -> None:
        archives = self.path.parent.glob("classes-*.jsa")
        for old in sorted(archives, key=lambda path: path.stat().st_mtime)[:-KEPT]:
            old.unlink()
