"""Rows of the store as values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

from dynamic_tables.definition import Definition
from dynamic_tables.model import (
    Action,
    Build,
    Cut,
    Estimate,
    Failure,
    Intent,
    Outcome,
    Pin,
    RefreshRecord,
    Status,
    Strategy,
    TableState,
    Work,
)
from dynamic_tables.names import TableName, quote
from dynamic_tables.reasons import Reason

Row = Mapping[Any, Any]  # a RowMapping of SQLAlchemy


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to refresh one table, until it expires or is taken over."""

    table_id: str
    token: int  # larger than that of every earlier claim of any table
    owner: str  # e.g. name:pid:process:random
    host: str  # where its pid is known; for people: `processes.name_of`
    pid: int
    refresh_id: str
    claimed_at: datetime  # this and the two below: by the database's clock
    heartbeat_at: datetime
    expires_at: datetime
    mode: Literal["single", "coordinator"] = "single"
    subtasks_total: int | None = None  # slices, of a coordinator
    subtasks_completed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who claims: enough to find out whether it is alive."""

    owner: str  # e.g. name:pid:process:random
    host: str
    pid: int
    expires_s: float  # without a heartbeat for so long, others may take over
    # Beginnings of the locations where two that commit at once may lose commits; "": anywhere.
    one_driver_at: tuple[str, ...] = ()

    @property
    def process(self) -> str:
        """How the owners of its process begin, and of no other: in two containers, host and number
        may be the same."""
        return self.owner.rpartition(":")[0] or self.owner

    def is_alone_at(self, location: str) -> bool:
        return location.startswith(self.one_driver_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRefresh:
    """The wish to bring a table to a cut."""

    table_id: str
    refresh_id: str  # shared by all tables that go to one cut
    trigger: str
    cut: Cut  # versions of base tables; those below the table count
    behind_since: datetime | None  # when the first change was made that the table has not read


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRefresh(WantedRefresh):
    """A request in the queue."""

    request_no: int  # its place
    requested_at: datetime
    token: int | None  # of the claim that works on it, or worked on it until it expired
    not_before: datetime | None  # None: at once
    returned: int  # how often it was handed back to be done later


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that takes requests from the queue."""

    owner: str
    worker_no: int
    host: str
    pid: int
    doing: str | None  # None: idle
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSubtask:
    """A slice of a refresh that any worker may compute."""

    slice_no: int
    subtask_type: str  # hash_range | modulo | partition
    subtask_data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """Where the rows of a slice lie, and how to tell that they are all there."""

    location: str
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtask(WantedSubtask):
    """One attempt at a slice; while it is claimed, the right to compute it."""

    table_id: str
    attempt: int  # 1: beside a worker that is slow; the first result wins
    sequence: int  # of the intent that it belongs to
    refresh_id: str
    dynamic_table: str  # the name, for people
    status: Literal["pending", "claimed", "completed", "failed"]
    token: int | None
    claimed_by: str | None
    host: str | None
    pid: int | None
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    expires_at: datetime | None
    retries: int
    reason: str | None
    error: str | None
    result_location: str | None
    result_rows: int | None
    checksum: str | None
    created_at: datetime
    completed_at: datetime | None
    lost: bool = False  # this call found that whoever was at it had vanished

    @property
    def result(self) -> SliceResult | None:
        if self.result_location is None or self.result_rows is None or self.checksum is None:
            return None
        return SliceResult(
            location=self.result_location, rows=self.result_rows, checksum=self.checksum
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One object of the embedded catalog, which `connect` registers again."""

    name: tuple[str, ...]  # catalog and schema; for tables and views also the name
    kind: Literal["table", "view", "schema"]
    location: str | None = None
    text: str | None = None  # of a view
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The same for all spellings; that of a table equals its `TableName.key`."""
        return ".".join(quote(part.lower()) for part in self.name)


def definition_row(definition: Definition) -> dict[str, Any]:
    return {
        "table_id": definition.table_id,
        "name_key": definition.name.key,
        "name": str(definition.name),
        "definition": definition.as_json(),
        "revision": definition.revision,
        "fingerprint": definition.fingerprint,
    }


def dependency_rows(definition: Definition) -> list[dict[str, Any]]:
    """One row a source, by its printed name."""
    rows = {
        str(source.name): {
            "table_id": definition.table_id,
            "source_name": str(source.name),
            "dynamic_id": source.dynamic_id,
        }
        for source in definition.sources
    }
    return list(rows.values())


def table_state(row: Row) -> TableState:
    return TableState(
        definition=Definition.from_json(row["definition"]),
        status=Status(row["status"]),
        failures=row["failures"],
        build=None if row["sequence"] is None else build_of(row, row["build_fingerprint"]),
        created_at=row["created_at"],
        suspended_because=row["suspended_because"],
        refreshed_at=row["refreshed_at"],
        seen_at=row["seen_at"],
        behind_since=row["behind_since"],
        failure=_failure(row),
    )


def _failure(row: Row) -> Failure | None:
    if row["failed_at"] is None:
        return None
    return Failure(
        at=row["failed_at"],
        reason=Reason(row["failed_reason"]),
        versions=row["failed_versions"],
    )


def build_row(build: Build) -> dict[str, Any]:
    return {
        "table_id": build.table_id,
        "sequence": build.sequence,
        "version": build.version,
        "cut": build.cut.as_json(),
        "pins": _pins_json(build.pins),
        "fingerprint": build.fingerprint,
    }


def build_of(row: Row, fingerprint: str) -> Build:
    return Build(
        table_id=row["table_id"],
        sequence=row["sequence"],
        version=row["version"],
        cut=Cut.from_json(row["cut"]),
        pins=_pins(row["pins"]),
        fingerprint=fingerprint,
    )


def snapshot_rows(build: Build) -> list[dict[str, Any]]:
    """What people see in `source_snapshots`: one row a source, by its printed name."""
    rows = {
        str(pin.name): {
            "source": str(pin.name),
            "source_id": pin.source_id,
            "snapshot_id": pin.version,
            "table_id": build.table_id,
            "sequence": build.sequence,
            "version": build.version,
        }
        for pin in build.pins
    }
    return list(rows.values())


def intent_row(intent: Intent) -> dict[str, Any]:
    return {
        "table_id": intent.table_id,
        "sequence": intent.sequence,
        "refresh_id": intent.refresh_id,
        "cut": intent.cut.as_json(),
        "pins": _pins_json(intent.pins),
        "fingerprint": intent.fingerprint,
    }


def intent_of(row: Row) -> Intent:
    return Intent(
        table_id=row["table_id"],
        sequence=row["sequence"],
        refresh_id=row["refresh_id"],
        cut=Cut.from_json(row["cut"]),
        pins=_pins(row["pins"]),
        fingerprint=row["fingerprint"],
        slicing=row["slicing"],
    )


def subtask_of(row: Row) -> Subtask:
    return Subtask(**{item.name: row[item.name] for item in fields(Subtask) if item.name in row})


def claim_of(row: Row) -> Claim:
    return Claim(**{item.name: row[item.name] for item in fields(Claim)})


def request_row(request: WantedRefresh) -> dict[str, Any]:
    return {
        "table_id": request.table_id,
        "refresh_id": request.refresh_id,
        "trigger": request.trigger,
        "cut": request.cut.as_json(),
        "behind_since": request.behind_since,
    }


def pending_of(row: Row) -> PendingRefresh:
    values: dict[str, Any] = {item.name: row[item.name] for item in fields(PendingRefresh)}
    values["cut"] = Cut.from_json(row["cut"])
    return PendingRefresh(**values)


def worker_of(row: Row) -> Worker:
    return Worker(**{item.name: row[item.name] for item in fields(Worker)})


def registry_row(entry: Registered) -> dict[str, Any]:
    return {
        "name_key": entry.key,
        "name": list(entry.name),
        "kind": entry.kind,
        "location": entry.location,
        "text": entry.text,
        "extra": dict(entry.extra),
    }


def registered_of(row: Row) -> Registered:
    return Registered(
        name=tuple(row["name"]),
        kind=row["kind"],
        location=row["location"],
        text=row["text"],
        extra=row["extra"],
    )


def history_row(record: RefreshRecord) -> dict[str, Any]:
    return {
        "refresh_id": record.refresh_id,
        "dynamic_table": str(record.table),
        "name_parts": list(record.table.parts),
        "table_id": record.table_id,
        "action": record.action.value,
        "outcome": record.outcome.value,
        "strategy": record.strategy.value if record.strategy else None,
        "reason": record.reason.value,
        "sequence": record.sequence,
        "version": record.version,
        "cut_from": record.cut_from.as_json() if record.cut_from else None,
        "cut": record.cut.as_json() if record.cut else None,
        "pins": _pins_json(record.pins),
        **asdict(record.work),
        "estimates": [estimate.as_json() for estimate in record.estimates],
        "rejected": {way.value: why.value for way, why in record.rejected.items()},
        "started_at": record.started_at,
        "duration_ms": record.duration_ms,
        "steps_ms": dict(record.steps_ms),
        "trigger": record.trigger,
        "error": record.error,
        "note": record.note,
        "behind_ms": record.behind_ms,
        "slices": record.slices,
    }


def record_of(row: Row) -> RefreshRecord:
    return RefreshRecord(
        refresh_id=row["refresh_id"],
        table=TableName(*row["name_parts"]),
        table_id=row["table_id"],
        action=Action(row["action"]),
        outcome=Outcome(row["outcome"]),
        reason=Reason(row["reason"]),
        strategy=Strategy(row["strategy"]) if row["strategy"] else None,
        sequence=row["sequence"],
        version=row["version"],
        cut_from=Cut.from_json(row["cut_from"]) if row["cut_from"] else None,
        cut=Cut.from_json(row["cut"]) if row["cut"] else None,
        pins=_pins(row["pins"]),
        work=Work(**{item.name: row[item.name] for item in fields(Work)}),
        estimates=tuple(Estimate.from_json(item) for item in row["estimates"] or ()),
        rejected={Strategy(way): Reason(why) for way, why in (row["rejected"] or {}).items()},
        started_at=row["started_at"],
        duration_ms=row["duration_ms"],
        steps_ms=row["steps_ms"],
        trigger=row["trigger"],
        error=row["error"],
        note=row["note"],
        behind_ms=row["behind_ms"],
        slices=row["slices"],
    )


def _pins_json(pins: tuple[Pin, ...]) -> list[dict[str, Any]]:
    return [pin.as_json() for pin in pins]


def _pins(data: list[dict[str, Any]]) -> tuple[Pin, ...]:
    return tuple(Pin.from_json(item) for item in data)
