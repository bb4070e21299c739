"""Delta's jars: downloaded by the first start, kept in a folder that all later starts share."""

from __future__ import annotations

import importlib.util
import os
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from dynamic_tables.errors import SetupError
from dynamic_tables.reasons import Reason
from dynamic_tables.settings import Settings

try:
    import fcntl
except ImportError:  # Windows: there, two first starts at once may hinder each other
    fcntl = None

DELTA_VERSION = "4.4.0"
DELTA_PACKAGE = f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"
COMPLETE = "complete"  # file: all jars are there
COUNTED_EVERY_S = 1.0

Say = Callable[[str], None]


def jar_folder(settings: Settings) -> Path:
    """Where the jars are kept between starts."""
    base = settings["jar_cache"] or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).expanduser() / "dynamic-tables" / f"delta-{DELTA_VERSION}"


def cached_jars(settings: Settings) -> list[str]:
    """The jars, if a start has downloaded them."""
    folder = jar_folder(settings)
    if not (folder / COMPLETE).is_file():
        return []
    present = {_library(path.name) for path in spark_jars().glob("*.jar")}
    return [
        str(path)
        for path in sorted((folder / "jars").glob("*.jar"))
        if _library(path.name.split("_", 1)[1]) not in present  # Ivy puts the group before the name
    ]


def spark_jars() -> Path:
    found = importlib.util.find_spec("pyspark")
    return Path(str(found.origin)).parent / "jars" if found else Path()


def _library(jar: str) -> str:
    """The name of a jar without its version."""
    return re.sub(r"-\d[\w.\-]*\.jar$", "", jar)


@contextmanager
def at_hand(settings: Settings, say: Say) -> Generator[list[str]]:
    """The jars for a start; none if this start is to download them, which it then does alone."""
    if found := cached_jars(settings):
        yield found
        return
    folder = jar_folder(settings)
    with _alone(folder, say):
        found = cached_jars(settings)  # another process may have been first
        if not found:
            with _progress(folder, say):
                yield []
            (folder / COMPLETE).touch()
            return
    yield found


@contextmanager
def _alone(folder: Path, say: Say) -> Generator[None]:
    """One process at a time: Ivy breaks if two fill the same folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise SetupError(
            f"Delta's jars cannot be kept here: {error.strerror}",
            reason=Reason.NO_PERMISSION,
            about=str(folder),
            hint="choose another folder: --jar-cache, or DYNAMIC_TABLES_JAR_CACHE",
        ) from error
    with lock:  # closing it lets go, and so does the death of the process
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"Another process is downloading Delta Lake ({DELTA_PACKAGE}): waiting …")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _progress(folder: Path, say: Say) -> Generator[None]:
    """Say that jars are being downloaded, and count them."""
    say(f"First start: downloading Delta Lake ({DELTA_PACKAGE}) …")
    done = threading.Event()

    def watch() -> None:
        started, last = time.monotonic(), 0
        while not done.wait(COUNTED_EVERY_S):
            count = sum(1 for _ in folder.glob("cache/**/*.jar"))
            if count != last:
                last = count
                say(f"  {count} jars, {time.monotonic() - started:.0f} s")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
