"""Who may commit to a table on local disk: one thread of a process, and one process, at a time.

Delta on `file:` excludes the writers of one JVM only. Whoever commits through us takes a lock on a
file beside the table: a JVM by Java's `FileLock` (`lock.py`), a process without Java by `fcntl`,
which on POSIX is the same lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from dynamic_tables.errors import Held, Refused
from dynamic_tables.reasons import Reason

LOCK_FILE = "_dynamic_tables.lock"  # Delta and VACUUM ignore names that begin with an underscore
LOCK_POLL_S = 0.05
_location_locks: dict[str, threading.Lock] = {}
_location_locks_guard = threading.Lock()


def held(about: str, wait_s: float) -> Held:
    return Held(
        f"somebody else has been committing to it for {wait_s:g} s",
        reason=Reason.HELD,
        about=about,
        hint="wait until it ends, or end it; then try again",
    )


@contextmanager
def threads_excluded(location: str, *, about: str, wait_s: float) -> Generator[None]:
    """One thread at a time: closing a file releases all locks that its process has on it."""
    with _location_locks_guard:
        lock = _location_locks.setdefault(location, threading.Lock())
    if not lock.acquire(timeout=wait_s):
        raise held(about, wait_s)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def file_locked(
    folder: Path, *, about: str, wait_s: float, sleep: Callable = time.sleep
) -> Generator[None]:
    """The same lock as a JVM takes, held by this process itself."""
    try:
        import fcntl  # noqa: PLC0415  POSIX has it
    except ImportError as error:
        raise Refused(
            "on this system nothing excludes writers of a local table without Java",
            reason=Reason.NO_EXCLUSION,
            about=about,
            hint="use rorder, which runs in Spark",
        ) from error
    with (
        threads_excluded(str(folder.resolve()), about=about, wait_s=wait_s),
        (folder / LOCK_FILE).open("ab") as file,
    ):
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise held(about, wait_s) from None
                sleep(LOCK_POLL_S)
        yield  # closing the file gives the lock back
