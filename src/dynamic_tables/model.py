"""The words of the product as frozen values: cuts, builds, records.

Nothing here knows Spark, SQL or a database. Everything that is kept in the store or in the lake has
`as_json` and `from_json`, which are each other's inverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from dynamic_tables.definition import Definition
from dynamic_tables.names import TableName
from dynamic_tables.reasons import Reason


class Action(StrEnum):
    """What a refresh did to a table."""

    INITIALIZE = "initialize"  # first load
    REFRESH = "refresh"  # brought to a new cut
    SKIP = "skip"  # not refreshed; the reason says why
    REINITIALIZE = "reinitialize"  # built anew because its definition or a source's schema changed


class Strategy(StrEnum):
    """How the rows were brought up to date."""

    NO_DATA = "no_data"
    APPEND = "append"
    FOLD = "fold"
    MERGE = "merge"
    KEYS = "keys"
    ROWS = "rows"
    FULL = "full"


class Status(StrEnum):
    """Whether a table is refreshed."""

    ACTIVE = "active"
    SUSPENDED = "suspended"


class Outcome(StrEnum):
    """How the refresh of one table ended."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One version for every base table below a table, and one instant, pinned together.

    The keys are Delta's table ids, not names: a table is what it is, whatever it is called.
    """

    versions: Mapping[str, int]
    instant: datetime

    def as_json(self) -> dict[str, Any]:
        return {"versions": dict(self.versions), "instant": self.instant.isoformat()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cut:
        return cls(versions=dict(data["versions"]), instant=datetime.fromisoformat(data["instant"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One source of a table, read at one version."""

    name: TableName
    source_id: str  # Delta's table id
    version: int
    latest: int  # the newest version that existed when the cut was pinned
    dynamic_id: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "name": list(self.name.parts),
            "source_id": self.source_id,
            "version": self.version,
            "latest": self.latest,
            "dynamic_id": self.dynamic_id,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pin:
        return cls(
            name=TableName(*data["name"]),
            source_id=data["source_id"],
            version=data["version"],
            latest=data["latest"],
            dynamic_id=data["dynamic_id"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A state of a dynamic table: the Delta version that equals the query at a cut."""

    table_id: str
    sequence: int  # n, the number in Delta's transaction identifier
    version: int  # the Delta version that holds the rows
    cut: Cut
    pins: tuple[Pin, ...]  # what the query read directly
    fingerprint: str  # `Definition.built_from` of the query that built it


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The decision to bring a table to a cut, written before anything else happens.

    Whoever finds it open completes *this* cut under *this* number.
    """

    table_id: str
    sequence: int
    refresh_id: str
    cut: Cut
    pins: tuple[Pin, ...]
    fingerprint: str
    slicing: Mapping[str, Any] | None = None  # how workers share it (`lake.slicing.Slicing`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a strategy would read, and how long that would take (see `refresh.costs`)."""

    strategy: Strategy
    bytes: int
    weight: int  # the bytes by what each kind of them costs
    seconds: float
    rows: int | None = None  # that changed in the sources; of `full`: that the table has

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "strategy": self.strategy.value, "seconds": round(self.seconds, 3)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Estimate:
        return cls(
            strategy=Strategy(data["strategy"]),
            bytes=data["bytes"],
            weight=data["weight"],
            seconds=data["seconds"],
            rows=data.get("rows"),  # of records that are older than this field: not known
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a refresh cost, as far as Spark and Delta tell."""

    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    bytes_read: int | None = None
    files_read: int | None = None
    bytes_written: int | None = None
    files_written: int | None = None
    spark_jobs: int | None = None
    cardinality_ratio: float | None = None  # affected keys, or changed rows, by stored rows

    @property
    def rows_changed(self) -> str:
        """What happened to the rows, in three signs.

        >>> Work(rows_inserted=3, rows_deleted=1).rows_changed
        '+3 -1'
        """
        counted = (("+", self.rows_inserted), ("~", self.rows_updated), ("-", self.rows_deleted))
        return " ".join(f"{sign}{number}" for sign, number in counted if number)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRecord:
    """One row of `refresh_history`."""

    refresh_id: str
    table: TableName
    table_id: str
    action: Action
    outcome: Outcome
    reason: Reason
    strategy: Strategy | None = None
    sequence: int | None = None
    version: int | None = None  # the Delta version that now holds the rows
    cut_from: Cut | None = None
    cut: Cut | None = None  # the one it reached, or failed to reach
    pins: tuple[Pin, ...] = ()
    work: Work = field(default_factory=Work)
    estimates: tuple[Estimate, ...] = ()  # of the strategies that were possible
    rejected: Mapping[Strategy, Reason] = field(default_factory=dict)  # those not taken, and why
    started_at: datetime
    duration_ms: int
    steps_ms: Mapping[str, int] = field(default_factory=dict)  # duration split by step
    trigger: str = "manual"
    error: str | None = None
    note: str | None = (
        None  # which sources have newer versions than the cut; the way out of an error
    )
    behind_ms: int | None = None  # since the first unread change; None: none, or not known
    slices: int | None = None  # that several workers computed; None: one did it all

    def __str__(self) -> str:
        """One line, and what is to be said below it."""
        return "\n".join([self.line, *(f"  {said}" for said in self.remarks)])

    @property
    def line(self) -> str:
        done = f"{self.place}: {self.did} ({self.reason.value})"
        reads = ", ".join(f"{pin.name}@{pin.version}" for pin in self.pins)
        parts = (done, self.work.rows_changed, reads and f"reads {reads}", self.seconds + " s")
        return ", ".join(filter(None, parts))

    @property
    def place(self) -> str:
        """The table, with the version that holds its rows."""
        return str(self.table) + ("" if self.version is None else f"@{self.version}")

    @property
    def did(self) -> str:
        how = f" {self.strategy.value}" if self.strategy else ""
        return f"{self.action.value}{how}{f' in {self.slices} slices' if self.slices else ''}"

    @property
    def seconds(self) -> str:
        return f"{self.duration_ms / 1000:.2f}"

    @property
    def remarks(self) -> list[str]:
        """What went wrong and the way out, or what else is to be known."""
        if self.error is None:
            return [f"{self.table}: {self.note}"] if self.note else []
        about = "" if self.error.startswith(f"{self.table}:") else f"{self.table}: "
        return [f"{about}{self.error}"] + ([f"  hint: {self.note}"] if self.note else [])

    def as_json(self) -> dict[str, Any]:
        """For `--json`: flat names, plain values."""
        work = {item.name: getattr(self.work, item.name) for item in fields(self.work)}
        return {
            "refresh_id": self.refresh_id,
            "table": str(self.table),
            "action": self.action.value,
            "outcome": self.outcome.value,
            "strategy": self.strategy.value if self.strategy else None,
            "reason": self.reason.value,
            "sequence": self.sequence,
            "version": self.version,
            "cut_from": self.cut_from.as_json() if self.cut_from else None,
            "cut": self.cut.as_json() if self.cut else None,
            "sources": {str(pin.name): pin.version for pin in self.pins},
            **work,
            "estimates": [estimate.as_json() for estimate in self.estimates],
            "rejected": {way.value: why.value for way, why in self.rejected.items()},
            "started_at": self.started_at.isoformat(),
            "duration_ms": self.duration_ms,
            "steps_ms": dict(self.steps_ms),
            "trigger": self.trigger,
            "error": self.error,
            "note": self.note,
            "behind_ms": self.behind_ms,
            "slices": self.slices,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshReport:
    """The outcome of one `refresh` call, one record a table, parents before children."""

    refresh_id: str
    records: tuple[RefreshRecord, ...]

    def __str__(self) -> str:
        lines = [str(record) for record in self.records]
        return "\n".join(lines) or "there are no dynamic tables to refresh"

    @property
    def failed(self) -> tuple[RefreshRecord, ...]:
        return tuple(record for record in self.records if record.outcome is Outcome.FAILED)

    @property
    def ok(self) -> bool:
        return not self.failed

    def as_json(self) -> dict[str, Any]:
        return {
            "refresh_id": self.refresh_id,
            "tables": [record.as_json() for record in self.records],
        }

    def __getitem__(self, table: str) -> RefreshRecord:
        """The record of one table, by the name as it is printed or by its last part."""
        wanted = table.lower()
        for record in self.records:
            if wanted in (str(record.table).lower(), record.table.name.lower()):
                return record
        raise KeyError(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How the last refresh of a table failed."""

    at: datetime  # by the store's clock
    reason: Reason
    versions: Mapping[str, int] | None  # of the base tables; None: it did not come so far


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A dynamic table as the store knows it."""

    definition: Definition
    status: Status
    failures: int  # in a row
    build: Build | None  # None: not loaded yet
    created_at: datetime
    suspended_because: str | None = None
    refreshed_at: datetime | None = None  # by the store's clock
    seen_at: datetime | None = None  # when a schedule last looked at its base tables
    behind_since: datetime | None = None  # the first change that it had not read then
    failure: Failure | None = None  # None: the last refresh succeeded

    def __str__(self) -> str:
        name = self.definition.name
        if self.build is None:
            return f"{name}: {self.status.value}, not loaded yet"
        failing = f", {self.failures} failures in a row" if self.failures else ""
        return f"{name}@{self.build.version}: {self.status.value}{failing}"


def utc_now() -> datetime:
    """The present instant; the only clock that is not a parameter."""
    return datetime.now(UTC)
