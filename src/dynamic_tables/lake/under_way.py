"""The refreshes under way on a lake, so that they can be watched and stopped."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from dynamic_tables.lake.base import Progress


class Stoppable(Protocol):
    """What is asked of a work area from other threads."""

    def progress(self) -> Progress: ...
    def cancel(self) -> None: ...


class UnderWay:
    """The work areas that are open; two may have one label, if one took over from the other."""

    def __init__(self) -> None:
        self._areas: list[Stoppable] = []
        self._lock = threading.Lock()

    @contextmanager
    def holding(self, area: Stoppable) -> Generator[None]:
        with self._lock:
            self._areas.append(area)
        try:
            yield
        finally:
            with self._lock:
                self._areas.remove(area)

    def progress(self) -> list[Progress]:
        with self._lock:
            areas = list(self._areas)
        return [area.progress() for area in areas]

    def cancel(self) -> None:
        with self._lock:
            areas = list(self._areas)
        for area in areas:
            area.cancel()
