"""The files of Delta's log: one JSON file a commit, one action a line.

A refresh asks for the same commits several times: what moved, how much, how to read it. So small
files are kept as they were parsed. A commit never changes, but a table that was dropped and made
anew, or came from a backup, has others of the same name: whether a file is the same is asked each
time.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dynamic_tables.lake import jvm
from dynamic_tables.lake.places import local_path

KEPT = 256  # files
KEPT_BYTES_AT_MOST = 64 * 2**10  # of one file: a commit of some hundred actions

State = tuple[int, ...]  # of a file: bytes, when it was written, and on the local disk its number
_kept: OrderedDict[str, tuple[State, tuple[Any, ...]]] = OrderedDict()  # last used ones last
_keeping = Lock()


def actions_of(spark: SparkSession, location: str, version: int) -> tuple[Any, ...]:
    """What a commit did, one thing after another; read only, because others see the same.

    FileNotFoundError: its file was cleaned up, or is kept elsewhere by a commit coordinator.
    """
    path = f"{location}/_delta_log/{version:020d}.json"
    try:
        state = _state(spark, path)
        known = _known(path, state)
        return _read(spark, path, state) if known is None else known
    except Py4JJavaError as error:
        if "FileNotFoundException" in str(error.java_exception):
            raise FileNotFoundError(location) from error
        raise


def _known(path: str, state: State) -> tuple[Any, ...] | None:
    with _keeping:
        before, actions = _kept.get(path, (None, ()))
        if before != state:
            return None
        _kept.move_to_end(path)
        return actions


def _read(spark: SparkSession, path: str, state: State) -> tuple[Any, ...]:
    actions = tuple(_parsed(spark, path))
    if state[0] > KEPT_BYTES_AT_MOST:
        return actions
    with _keeping:
        _kept[path] = state, actions
        _kept.move_to_end(path)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return actions


def _state(spark: SparkSession, path: str) -> State:
    local = local_path(path)
    if local is not None:
        found = local.stat()
        return found.st_size, found.st_mtime_ns, found.st_ino
    place, files = jvm.hadoop_path(spark, path)
    status = files.getFileStatus(place)
    return status.getLen(), status.getModificationTime()


def _parsed(spark: SparkSession, path: str) -> Iterator[Any]:
    for line in _lines(spark, path):
        yield json.loads(line)


def _lines(spark: SparkSession, path: str) -> Iterator[str]:
    """A text file line by line; local ones without a detour through the JVM."""
    local = local_path(path)
    if local is not None:
        with local.open(encoding="utf-8") as file:
            yield from file
        return
    place, files = jvm.hadoop_path(spark, path)
    io = jvm.packages(spark).java.io
    reader = io.BufferedReader(io.InputStreamReader(files.open(place), "UTF-8"))
    try:
        while (line := reader.readLine()) is not None:
            yield line
    finally:
        reader.close()
