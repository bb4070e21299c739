"""The commit lock: on local disk, processes exclude each other while they commit to a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dynamic_tables.lake import jvm
from dynamic_tables.lake.local_lock import LOCK_FILE, LOCK_POLL_S, held, threads_excluded
from dynamic_tables.lake.places import local_path


@contextmanager
def commit_lock(
    spark: SparkSession, location: str, *, about: str, wait_s: float, sleep: Callable = time.sleep
) -> Generator[None]:
    """Exclude other processes while committing to a table on local disk.

    Delta on `file:` excludes writers of one JVM only. The lock is taken inside the JVM that
    commits, so it lives exactly as long as that JVM: a lock held by Python would end before its JVM
    does. Other file systems need no lock of ours.
    """
    folder = local_path(location)
    if folder is None:
        yield
        return
    with threads_excluded(location, about=about, wait_s=wait_s):
        yield from _file_locked(spark, folder, about=about, wait_s=wait_s, sleep=sleep)


def _file_locked(
    spark: SparkSession, folder: Path, *, about: str, wait_s: float, sleep: Callable
) -> Generator[None]:
    file = jvm.java_class(spark, "java.io.RandomAccessFile")(str(folder / LOCK_FILE), "rw")
    try:
        deadline = time.monotonic() + wait_s
        while (lock := _try_lock(file)) is None:
            if time.monotonic() > deadline:
                raise held(about, wait_s)
            sleep(LOCK_POLL_S)
        try:
            yield
        finally:
            lock.release()
    finally:
        file.close()


def _try_lock(file: jvm.Java) -> jvm.Java | None:
    try:
        return file.getChannel().tryLock()
    except Py4JJavaError as error:
        if "OverlappingFileLockException" in str(error.java_exception):
            return None  # another thread of this JVM has it
        raise
