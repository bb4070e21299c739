"""What a statement gave: a small frame over DuckDB's relation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dynamic_tables.lake.duck.text import quote

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

INSTANT = "TIMESTAMP WITH TIME ZONE"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Result:
    """The rows that a statement gave when it ran; statements without rows have no columns."""

    def __init__(self, relation: DuckDBPyRelation | None) -> None:
        self.relation = relation

    @property
    def columns(self) -> list[str]:
        return [] if self.relation is None else list(self.relation.columns)

    def limit(self, count: int) -> Result:
        return Result(None if self.relation is None else self.relation.limit(count))

    def where(self, condition: str) -> Result:
        return Result(None if self.relation is None else self.relation.filter(condition))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows; instants are in UTC."""
        return [] if self.relation is None else fetched(self.relation)

    collect = fetchall

    def show(self) -> None:
        if self.relation is not None:
            self.relation.show()


def fetched(relation: DuckDBPyRelation) -> list[tuple[Any, ...]]:
    """The rows; DuckDB itself would need another package (pytz) to give instants to Python."""
    instants = [index for index, kind in enumerate(relation.types) if str(kind) == INSTANT]
    if not instants:
        return relation.fetchall()
    items = [
        f"epoch_us({quote(name)}) AS {quote(name)}" if index in instants else quote(name)
        for index, name in enumerate(relation.columns)
    ]
    return [
        tuple(_instant(v) if index in instants else v for index, v in enumerate(row))
        for row in relation.project(", ".join(items)).fetchall()
    ]


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
