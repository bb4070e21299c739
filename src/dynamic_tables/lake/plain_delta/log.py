"""A version of a table, by the log: its protocol, its metadata and its files.

The newest complete checkpoint and the commits after it are read and folded, as the protocol asks:
a file is known by its path and its deletion vector, so that a commit may exchange the one for the
other. A gap in the log is an error: without the commit nobody knows what it did.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from dynamic_tables.errors import InternalError, InvalidInput, Refused
from dynamic_tables.lake.plain_delta.checkpoints import Checkpoint, newest_checkpoint, written_in
from dynamic_tables.lake.plain_delta.store import LOG, Store
from dynamic_tables.reasons import Reason

COMMIT = ".json"
DIGITS = 20  # of a version in the name of its commit
ROW_TRACKING = "delta.rowTracking"  # the domain that keeps the highest row id
LOOKS = 3  # while commits come, or old ones are cleaned up, between listing and reading
PAUSE_S = 0.1  # before the next look: a listing may have missed what was written beside it
IMPLIED = {  # features that older tables have by their version, for readers and writers
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
FEATURES_FROM = 7  # version of writers from which features are named one by one
READER_VERSIONS, WRITER_VERSIONS = 3, 7  # known here


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What readers and writers of a table must know."""

    reader: int
    writer: int
    features: frozenset[str]

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> Protocol:
        """From the log.

        >>> sorted(Protocol.of({"minReaderVersion": 1, "minWriterVersion": 3}).features)
        ['appendOnly', 'checkConstraints', 'invariants']
        """
        writer = action["minWriterVersion"]
        named = {*(action.get("readerFeatures") or ()), *(action.get("writerFeatures") or ())}
        if writer < FEATURES_FROM:
            named |= {name for since, names in IMPLIED.items() if writer >= since for name in names}
        return cls(reader=action["minReaderVersion"], writer=writer, features=frozenset(named))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Columns and properties of a table."""

    id: str
    schema: str  # JSON
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> Metadata:
        return cls(
            id=action["id"],
            schema=action["schemaString"],
            partition_columns=tuple(action.get("partitionColumns") or ()),
            configuration=dict(action.get("configuration") or {}),
        )

    def is_on(self, key: str) -> bool:
        return self.configuration.get(key, "").lower() == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of rows."""

    path: str  # as the log has it
    size: int
    partition_values: Mapping[str, str | None]
    vector: Mapping[str, Any] | None  # which of its rows are gone
    tags: Mapping[str, str]
    statistics: str | None
    counts: Mapping[str, Any] | None  # rows and NULLs, where a checkpoint has them in columns
    base_row_id: int | None
    commit_version: int | None  # of its rows, unless they say otherwise

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> File:
        return cls(
            path=action["path"],
            size=action["size"],
            partition_values=dict(action.get("partitionValues") or {}),
            vector=_without_nothing(action.get("deletionVector")),
            tags=dict(action.get("tags") or {}),
            statistics=action.get("stats"),
            counts=action.get("stats_parsed"),
            base_row_id=action.get("baseRowId"),
            commit_version=action.get("defaultRowCommitVersion"),
        )

    @property
    def told(self) -> Mapping[str, Any]:
        """What the log tells of its rows; empty if it tells nothing."""
        return json.loads(self.statistics) if self.statistics else self.counts or {}

    @property
    def state(self) -> tuple[str, str | None]:
        """What changes whenever rows of the file go."""
        return state_of({"path": self.path, "deletionVector": self.vector})


def state_of(action: Mapping[str, Any]) -> tuple[str, str | None]:
    """By what an `add` or a `remove` knows its file."""
    vector = action.get("deletionVector")
    known = None
    if vector:
        offset = vector.get("offset")
        place = f"{vector['storageType']}{vector['pathOrInlineDv']}"
        known = place if offset is None else f"{place}@{offset}"
    return one_spelling(unquote(action["path"])), known


def one_spelling(path: str) -> str:
    """Absolute paths, which Delta on Spark writes in another spelling than it found them.

    >>> [one_spelling(path) for path in ("/t/f", "file:/t/f", "file:///t/f", "p=1/f")]
    ['file:/t/f', 'file:/t/f', 'file:/t/f', 'p=1/f']
    >>> one_spelling("s3a://bucket/f")
    's3://bucket/f'
    """
    if path.startswith(("/", "file:")):
        return "file:/" + path.removeprefix("file:").lstrip("/")
    scheme, found, rest = path.partition("://")
    return f"s3://{rest}" if found and scheme in ("s3a", "s3n") else path


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A version of a table."""

    version: int
    protocol: Protocol
    metadata: Metadata
    files: Mapping[tuple[str, str | None], File]  # by their states
    highest_row_id: int | None  # that was given away; None: the table tracks no rows
    mark: str | None  # of its commit: another one under this number is another table; None: gone


class _Gap(Exception):
    """A listing that lacks a version."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


class _State:
    """What is known of a table after some actions."""

    def __init__(self, known: Snapshot | None = None) -> None:
        self.protocol = known.protocol if known else None
        self.metadata = known.metadata if known else None
        self.files = dict(known.files) if known else {}
        self.highest_row_id = known.highest_row_id if known else None

    def take(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """The actions of one commit: it may exchange a file for itself, in any order."""
        added = []
        for action in actions:
            if (file := action.get("add")) is not None:
                added.append(File.of(file))
            elif (file := action.get("remove")) is not None:
                self.files.pop(state_of(file), None)
            elif (metadata := action.get("metaData")) is not None:
                self.metadata = Metadata.of(metadata)
            elif (protocol := action.get("protocol")) is not None:
                self.protocol = Protocol.of(protocol)
            elif (domain := action.get("domainMetadata")) is not None:
                self._take_domain(domain)
        self.files.update((file.state, file) for file in added)

    def _take_domain(self, domain: Mapping[str, Any]) -> None:
        if domain["domain"] == ROW_TRACKING:
            mark = json.loads(domain["configuration"] or "{}").get("rowIdHighWaterMark")
            self.highest_row_id = None if domain.get("removed") else mark

    def snapshot(self, version: int, mark: str | None, location: str) -> Snapshot:
        if self.protocol is None or self.metadata is None:
            raise InternalError(
                f"its log has no protocol or no metadata up to version {version}",
                reason=Reason.LAKE_CHANGED,
                about=location,
            )
        return Snapshot(
            version=version,
            protocol=self.protocol,
            metadata=self.metadata,
            files=self.files,
            highest_row_id=self.highest_row_id,
            mark=mark,
        )


def newest(store: Store, known: Snapshot | None = None) -> Snapshot:
    """The newest version; what is known of an older one is not read again."""
    for look in range(LOOKS):
        try:
            return _read(store, known)
        except FileNotFoundError:  # cleaned up since it was listed; or it is not there at all
            known = None
            if look == LOOKS - 1:
                raise
        except _Gap as gap:
            if look == LOOKS - 1:
                raise _lacking(gap.version, store.location) from gap
        time.sleep(PAUSE_S)
    raise AssertionError("unreachable")


def _lacking(version: int, location: str) -> Refused:
    return Refused(
        f"its log lacks version {version}, and no checkpoint stands for it",
        reason=Reason.HISTORY_GONE,
        about=location,
        hint="look again; if it stays so, copy the files that are left to a new table",
    )


def _read(store: Store, known: Snapshot | None) -> Snapshot:
    names = store.log_names()
    commits = {int(name[:DIGITS]) for name in names if _is_commit(name)}
    if known is not None and not _still_stands(store, known, commits):
        known = None
    start = known or newest_checkpoint(names)
    if start is None and not commits:
        raise InvalidInput(
            "there is no Delta table here", reason=Reason.UNKNOWN_SOURCE, about=store.location
        )
    if isinstance(start, Checkpoint):
        state, version = _State(), start.version
        state.take(written_in(store, start))
        mark = _mark(store.read(commit_path(version))) if version in commits else None
    else:
        state = _State(start)
        version, mark = (start.version, start.mark) if start else (-1, None)
    last = max(commits, default=version)
    for following in range(version + 1, last + 1):
        if following not in commits:
            raise _Gap(following)
        content = store.read(commit_path(following))
        state.take(_actions_in(content))
        mark = _mark(content)
    return state.snapshot(max(version, last), mark, store.location)


def _still_stands(store: Store, known: Snapshot, commits: set[int]) -> bool:
    """Whether the commit that a version was known by is there, and all since then.

    Another table may lie in the same place now; and on local disk Spark may put a commit of its own
    over another one.
    """
    since = range(known.version, max(commits, default=-1) + 1)
    if known.version not in commits or not all(version in commits for version in since):
        return False
    return known.mark == _mark(store.read(commit_path(known.version)))


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_commit(name: str) -> bool:
    return name.endswith(COMMIT) and name[:DIGITS].isdigit() and len(name) == DIGITS + len(COMMIT)


def commit_path(version: int) -> str:
    """
    >>> commit_path(7)
    '_delta_log/00000000000000000007.json'
    """
    return f"{LOG}/{version:0{DIGITS}}{COMMIT}"


def actions_of(store: Store, version: int) -> Iterator[dict[str, Any]]:
    """What a commit did."""
    return _actions_in(store.read(commit_path(version)))


def _actions_in(content: bytes) -> Iterator[dict[str, Any]]:
    return map(json.loads, filter(bytes.strip, content.splitlines()))


def _without_nothing(vector: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A checkpoint has all fields, a commit those that say something."""
    return {key: value for key, value in vector.items() if value is not None} if vector else None
