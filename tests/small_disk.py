"""A disk of a few megabytes, to be filled up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHUNK = 4096


@contextmanager
def mounted(folder: Path, *, size: str) -> Generator[Path]:
    """A file system of its own; only root may mount one, others skip the test."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    made = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(disk: Path, *, left: int) -> Generator[None]:
    """Leave so many bytes free, and give the rest back afterwards."""
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    size = free.f_bavail * free.f_frsize - left
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, CHUNK))
    try:
        yield
    finally:
        ballast.unlink()
