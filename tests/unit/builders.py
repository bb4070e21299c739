"""Small definitions and states for pure tests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from dynamic_tables.definition import Column, Definition, Source
from dynamic_tables.lake.base import SourceState
from dynamic_tables.model import Build, Cut, Pin, Status, TableState
from dynamic_tables.names import TableName
from dynamic_tables.options import Options
from dynamic_tables.refresh.cut import CLOCK, Present

INSTANT = datetime(2026, 1, 1, tzinfo=UTC)


def name(table: str) -> TableName:
    return TableName("spark_catalog", "default", table)


def definition(
    table: str, *, reads: tuple[str, ...] = (), dynamic: tuple[str, ...] = (), clock: bool = False
) -> Definition:
    """`reads` are base tables; `dynamic` are dynamic tables, whose id is their name."""
    columns = (Column(name="a", type="INT"),)
    bases = tuple(Source(name=name(base), columns=columns) for base in reads)
    parents = tuple(Source(name=name(p), columns=columns, dynamic_id=p) for p in dynamic)
    return Definition(
        table_id=table,
        name=name(table),
        query="SELECT 1 AS a",
        namespace=("spark_catalog", "default"),
        settings={},
        columns=columns,
        sources=bases + parents,
        views=(),
        options=Options(),
        location=f"file:/lake/{table}",
        fingerprint="f",
        reads_clock=clock,
    )


def build(table: str, version: int, cut: Mapping[str, int], pins: tuple[Pin, ...] = ()) -> Build:
    return Build(
        table_id=table,
        sequence=version,
        version=version,
        cut=Cut(versions=dict(cut), instant=INSTANT),
        pins=pins,
        fingerprint="f/-",
    )


def state(
    of: Definition, standing: Build | None = None, status: Status = Status.ACTIVE
) -> TableState:
    return TableState(definition=of, status=status, failures=0, build=standing, created_at=INSTANT)


def present(**versions: int) -> Present:
    """Base tables whose Delta id is `id-NAME`."""
    bases = {
        name(base).key: SourceState(
            source_id=f"id-{base}", version=version, columns=(), location=f"file:/{base}"
        )
        for base, version in versions.items()
    }
    return Present(bases=bases, instant=INSTANT)


def pin(table: str, version: int, *, source_id: str | None = None) -> Pin:
    return Pin(
        name=name(table), source_id=source_id or f"id-{table}", version=version, latest=version
    )


__all__ = ["CLOCK", "build", "definition", "name", "pin", "present", "state"]
