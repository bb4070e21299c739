"""Sleeping until there may be something to do.

PostgreSQL's NOTIFY wakes at once; a message may be lost, so the sleeper looks again after a while
in any case. SQLite has nothing of the kind.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from dynamic_tables.store.engine import CHANNEL

SLICE_S = 0.2  # how soon a sleeper notices that it is to stop


class Waker(Protocol):
    """One sleeper."""

    def sleep(self, seconds: float, stop: threading.Event) -> None:
        """Return after the time, on a message, or when `stop` is set."""

    def close(self) -> None: ...


class _Clock:
    """By time alone."""

    def sleep(self, seconds: float, stop: threading.Event) -> None:
        stop.wait(seconds)

    def close(self) -> None:
        return None


class _Listener:
    """By NOTIFY, on a connection of its own; while the server is away, by time alone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def sleep(self, seconds: float, stop: threading.Event) -> None:
        """Who begins to listen looks once more first: what was said before went unheard."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not stop.is_set():
            try:
                if self._connection is None:
                    self._connection = self._listening()
                    return
                if self._heard(self._connection, min(left, SLICE_S)):
                    return
            except SQLAlchemyError:  # no answer, or no connection left in the pool
                self.close()
                stop.wait(left)

    def _heard(self, connection: Connection, seconds: float) -> bool:
        driver = connection.connection.driver_connection
        assert driver is not None
        try:
            return any(True for _ in driver.notifies(timeout=seconds, stop_after=1))
        except driver_error(self._engine) as error:
            raise DBAPIError("LISTEN", None, error) from error

    def _listening(self) -> Connection:
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        except SQLAlchemyError:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None


def driver_error(engine: Engine) -> type[BaseException]:
    """The root of the driver's errors."""
    return engine.dialect.loaded_dbapi.Error


def waker(engine: Engine) -> Waker:
    return _Listener(engine) if engine.dialect.name == "postgresql" else _Clock()
