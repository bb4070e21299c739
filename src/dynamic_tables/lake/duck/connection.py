"""Connections to one DuckDB that take turns.

DuckLake 1.5.5 crashes the process now and then if one connection commits while another begins a
statement. So the statements of all connections to a lake run one after another; each of them still
uses all threads that DuckDB has.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


@contextmanager
def _pandas_is_missing() -> Generator[None]:
    """DuckDB imports pandas for every value it gets; if there is none, do not look each time."""
    if "pandas" in sys.modules or _has_pandas():
        yield
        return
    sys.modules["pandas"] = None  # ty: ignore[invalid-assignment]  an import fails at once
    try:
        yield
    finally:
        sys.modules.pop("pandas", None)


@cache
def _has_pandas() -> bool:
    return find_spec("pandas") is not None


class Connection:
    """DuckDB's connection, as far as we use it."""

    def __init__(self, raw: DuckDBPyConnection, turn: threading.RLock | None = None) -> None:
        self._raw = raw
        self.turn = turn or threading.RLock()  # held while a statement runs

    def cursor(self) -> Connection:
        """A connection of its own to the same DuckDB."""
        with self.turn:
            return Connection(self._raw.cursor(), self.turn)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Connection:
        with self.turn, _pandas_is_missing():
            self._raw.execute(statement, values)
        return self

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self.turn, _pandas_is_missing():
            self._raw.executemany(statement, rows)

    def fetchall(self) -> list[tuple[Any, ...]]:
        with self.turn:
            return self._raw.fetchall()

    def fetchone(self) -> tuple[Any, ...] | None:
        with self.turn:
            return self._raw.fetchone()

    def sql(self, query: str) -> DuckDBPyRelation | None:
        """A query that has not run yet, or None for a statement that has."""
        with self.turn:
            return self._raw.sql(query)

    def interrupt(self) -> None:
        """End the statement that runs, from another thread."""
        self._raw.interrupt()

    def close(self) -> None:
        with self.turn:
            self._raw.close()
