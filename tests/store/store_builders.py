"""Small values for the tests of the store; every text column can be made hostile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from dynamic_tables.definition import Column, Definition, Source, ViewUse
from dynamic_tables.model import (
    Action,
    Build,
    Cut,
    Intent,
    Outcome,
    Pin,
    RefreshRecord,
    Strategy,
    Work,
)
from dynamic_tables.names import TableName
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason
from dynamic_tables.store import Claimant, WantedRefresh

INSTANT = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


def name(table: str = "by_customer", schema: str = "sales") -> TableName:
    return TableName("spark_catalog", schema, table)


def definition(
    table: str = "by_customer", *, parents: tuple[Definition, ...] = (), **changes: Any
) -> Definition:
    base = Source(name=name("orders"), columns=(Column(name="id", type="bigint"),))
    dynamic = tuple(
        Source(name=parent.name, columns=parent.columns, dynamic_id=parent.table_id)
        for parent in parents
    )
    values: dict[str, Any] = {
        "table_id": f"id-{table}",
        "name": name(table),
        "query": "SELECT id, count(*) AS n FROM orders GROUP BY id",
        "namespace": ("spark_catalog", "sales"),
        "settings": {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"},
        "columns": (Column(name="id", type="bigint"), Column(name="n", type="decimal(10,2)")),
        "sources": (base, *dynamic),
        "views": (
            ViewUse(
                name=name("v"),
                text="SELECT 1",
                namespace=("spark_catalog", "default"),
                columns=("a",),
                settings={"spark.sql.ansi.enabled": "true"},
            ),
        ),
        "options": Options(),
        "location": "/lake/sales/by_customer",
        "fingerprint": "f1",
        "reads_clock": True,
        "approximate": ("n",),
    }
    return Definition(**{**values, **changes})


def cut(version: int = 7, seconds: int = 0) -> Cut:
    return Cut(versions={"orders-id": version}, instant=INSTANT + timedelta(seconds=seconds))


def pins(version: int = 7) -> tuple[Pin, ...]:
    return (
        Pin(name=name("orders"), source_id="orders-id", version=version, latest=version + 1),
        Pin(
            name=name("parent"),
            source_id="parent-id",
            version=version,
            latest=version,
            dynamic_id="id-parent",
        ),
    )


def build(sequence: int = 1, version: int = 1, at: int = 7, table: str = "by_customer") -> Build:
    return Build(
        table_id=f"id-{table}",
        sequence=sequence,
        version=version,
        cut=cut(at),
        pins=pins(at),
        fingerprint="f1",
    )


def intent(sequence: int = 1, at: int = 7, **changes: Any) -> Intent:
    values: dict[str, Any] = {
        "table_id": "id-by_customer",
        "sequence": sequence,
        "refresh_id": f"refresh-{sequence}",
        "cut": cut(at),
        "pins": pins(at),
        "fingerprint": "f1",
    }
    return Intent(**{**values, **changes})


def record(sequence: int | None = 1, **changes: Any) -> RefreshRecord:
    values: dict[str, Any] = {
        "refresh_id": f"refresh-{sequence}",
        "table": name(),
        "table_id": "id-by_customer",
        "action": Action.REFRESH,
        "outcome": Outcome.DONE,
        "reason": Reason.NOT_INCREMENTAL,
        "strategy": Strategy.MERGE,
        "sequence": sequence,
        "version": 3,
        "cut_from": cut(6),
        "cut": cut(7),
        "pins": pins(),
        "rejected": {Strategy.APPEND: Reason.NOT_MONOTONE, Strategy.FULL: Reason.DEARER},
        "work": Work(rows_inserted=1, rows_updated=2, bytes_read=2**40, spark_jobs=4),
        "started_at": INSTANT + timedelta(seconds=sequence or 0),
        "duration_ms": 1200,
        "steps_ms": {"computed": 900, "committed": 300},
        "trigger": "schedule",
        "note": "orders has version 9",
    }
    return RefreshRecord(**{**values, **changes})


def failed(**changes: Any) -> RefreshRecord:
    return record(
        None,
        **{
            "outcome": Outcome.FAILED,
            "reason": Reason.QUERY_FAILED,
            "strategy": None,
            "error": "no",
            **changes,
        },
    )


def no_data(sequence: int, **changes: Any) -> RefreshRecord:
    return record(sequence, strategy=Strategy.NO_DATA, reason=Reason.NOT_MOVED, **changes)


def claimant(
    pid: int = 1,
    host: str = "here",
    expires_s: float = 60.0,
    *,
    alone_at: tuple[str, ...] = (),
    process: str = "x",
    opened: int = 1,
) -> Claimant:
    owner = f"{host}:{pid}:{process}:{opened}"
    return Claimant(owner=owner, host=host, pid=pid, expires_s=expires_s, one_driver_at=alone_at)


def request(table: str = "by_customer", refresh_id: str = "wave-1", at: int = 7) -> WantedRefresh:
    return WantedRefresh(
        table_id=f"id-{table}",
        refresh_id=refresh_id,
        trigger="schedule",
        cut=cut(at),
        behind_since=INSTANT,
    )
