"""Checkpoints: all that stands at a version, in Parquet or JSON, in one file or in several."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dynamic_tables.lake.plain_delta.store import LOG, Store

NAME = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<uuid>[0-9a-fA-F-]{36}))?\.(?P<form>parquet|json)"
)
SIDECARS = f"{LOG}/_sidecars"
OF_FILES = (
    *("path", "partitionValues", "size", "deletionVector", "tags", "stats"),
    *("baseRowId", "defaultRowCommitVersion"),
)
COUNTS = "stats_parsed"  # statistics in columns; of these, what rows and NULLs are counted by:
OF_COUNTS = tuple(f"{COUNTS}.{name}" for name in ("numRecords", "nullCount", "tightBounds"))
WANTED = ("protocol", "metaData", "domainMetadata", "sidecar")
MAPS = {"add": ("partitionValues", "tags"), "metaData": ("configuration",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where all that stands at a version is written."""

    version: int
    names: tuple[str, ...]


def newest_checkpoint(names: Iterable[str]) -> Checkpoint | None:
    """The newest one of which all parts are there.

    >>> log = [f"{n:020}.checkpoint.parquet" for n in (10, 20)]
    >>> newest_checkpoint([*log, f"{30:020}.checkpoint.{1:010}.{2:010}.parquet"]).version
    20
    """
    parts: dict[tuple[int, int, str], list[str]] = defaultdict(list)
    for name in sorted(names):
        if (known := NAME.fullmatch(name)) is not None:
            wanted = int(known["parts"] or 1)
            parts[int(known["version"]), wanted, known["uuid"] or ""].append(name)
    whole = [key for key, found in parts.items() if len(found) == key[1]]
    if not whole:
        return None
    chosen = max(whole)
    return Checkpoint(version=chosen[0], names=tuple(parts[chosen]))


def written_in(store: Store, checkpoint: Checkpoint) -> Iterator[dict[str, Any]]:
    """The actions of a checkpoint, those of its side-cars too."""
    for name in checkpoint.names:
        for action in _actions(store, f"{LOG}/{name}"):
            side = action.get("sidecar")
            if side is None:
                yield action
            else:
                beside = unquote(side["path"]).rpartition("/")[2]  # however it is spelled
                yield from _actions(store, f"{SIDECARS}/{beside}")


def _actions(store: Store, path: str) -> Iterator[dict[str, Any]]:
    if path.endswith(".json"):
        yield from map(json.loads, filter(bytes.strip, store.read(path).splitlines()))
        return
    with store.open_new(path) as source, pq.ParquetFile(source) as file:
        known = {file.schema.column(n).path.partition(".")[0] for n in range(len(file.schema))}
        columns = [name for name in WANTED if name in known]
        columns += [f"add.{name}" for name in (*OF_FILES, *OF_COUNTS)]
        for batch in file.iter_batches(columns=columns):
            for name in batch.schema.names:
                found = batch.column(name)
                for value in _needed(found.filter(found.is_valid())).to_pylist():
                    yield {name: _with_dicts(value, MAPS.get(name, ()))}


def _needed(actions: pa.StructArray) -> pa.StructArray:
    """Without the statistics in columns if all have them as text: they are many values."""
    fields = [actions.type.field(n) for n in range(actions.type.num_fields)]
    names = [field.name for field in fields]
    if COUNTS not in names or "stats" not in names or actions.field("stats").null_count:
        return actions
    kept = [field for field in fields if field.name != COUNTS]
    return pa.StructArray.from_arrays([actions.field(f.name) for f in kept], fields=kept)


def _with_dicts(value: Mapping[str, Any], maps: Iterable[str]) -> dict[str, Any]:
    """Maps come out of Parquet as pairs."""
    return {k: dict(v) if k in maps and v is not None else v for k, v in value.items()}
