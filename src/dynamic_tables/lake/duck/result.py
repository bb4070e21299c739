"""What a statement gave: a small frame over DuckDB's relation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb

from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake.duck.faults import headline
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

INSTANT = "TIMESTAMP WITH TIME ZONE"
SHOWN_ROWS = 20  # of a result that is printed
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Result:
    """The rows that a statement gave when it ran; statements without rows have no columns.

    DuckDB's relation would run its query again for each question, and answer from a later state of
    the tables. So the query runs once, here, and every question after that is answered from what
    it gave; only `relation` and `where`, which need DuckDB, ask the lake again.
    """

    def __init__(
        self, relation: DuckDBPyRelation | None, turn: AbstractContextManager[Any]
    ) -> None:
        self.relation = relation  # DuckDB's own
        self._turn = turn  # held while a statement runs
        self._rows = None if relation is None else Rows(relation)
        self._limit: int | None = None

    @property
    def columns(self) -> list[str]:
        return [] if self.relation is None else list(self.relation.columns)

    def limit(self, count: int) -> Result:
        """The first rows of this result."""
        limited = Result(None, self._turn)
        if self.relation is not None:
            limited._limit = count if self._limit is None else min(count, self._limit)
            limited.relation, limited._rows = self.relation.limit(limited._limit), self._rows
        return limited

    def where(self, condition: str) -> Result:
        """The rows that fulfil a condition: the query runs again, at this moment."""
        try:
            with self._turn:
                found = None if self.relation is None else self.relation.filter(condition)
                return Result(found, self._turn)
        except duckdb.Error as error:
            raise InvalidInput(
                headline(error),
                reason=Reason.QUERY_FAILED,
                about=f"where({condition!r})",
                hint="where runs the query again; write the condition into the statement itself",
            ) from error

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows; instants are in UTC."""
        return [] if self._rows is None else self._rows.first(self._limit)

    collect = fetchall

    def show(self) -> None:
        """Print the first rows."""
        print(self)  # noqa: T201  what it is for

    def __str__(self) -> str:
        if self._rows is None:
            return "done"
        limit = SHOWN_ROWS if self._limit is None else min(SHOWN_ROWS, self._limit)
        found = self._rows.first(limit + 1 if limit == SHOWN_ROWS else limit)
        more = [f"… the first {limit} rows"] if len(found) > limit else []
        return "\n".join([*_aligned(self.columns, found[:limit]), *more])


class Rows:
    """The rows of a query that runs now, once.

    DuckDB keeps them, packed; only those that somebody asks for become Python's, and stay so.
    """

    def __init__(self, relation: DuckDBPyRelation) -> None:
        kinds = [str(kind) for kind in relation.types]
        self._instants = frozenset(at for at, kind in enumerate(kinds) if kind == INSTANT)
        # Instants as numbers: for others DuckDB would need another package (pytz). By place: two
        # columns may have one name.
        items = [
            f"epoch_us(#{at + 1})" if at in self._instants else f"#{at + 1}"
            for at in range(len(kinds))
        ]
        self._ran: DuckDBPyRelation | None = relation.project(", ".join(items))
        self._ran.execute()
        self._made: list[tuple[Any, ...]] = []

    def first(self, count: int | None) -> list[tuple[Any, ...]]:
        """So many rows, or all."""
        if self._ran is not None and (count is None or count > len(self._made)):
            wanted = None if count is None else count - len(self._made)
            found = self._ran.fetchall() if wanted is None else self._ran.fetchmany(wanted)
            if wanted is None or len(found) < wanted:
                self._ran = None  # asked once more, it would run once more
            self._made += [self._row(row) for row in found]
        return self._made[:count]

    def _row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self._instants:
            return row
        return tuple(_instant(v) if at in self._instants else v for at, v in enumerate(row))


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A plain table: headings, then a line a row."""
    cells = [list(columns)] + [["NULL" if v is None else str(v) for v in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
