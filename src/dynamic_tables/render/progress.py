"""A line that says what Spark is doing, while somebody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from dynamic_tables.app import DynamicTables
from dynamic_tables.errors import DynamicTablesError

POLL_S = 0.5  # how often Spark is asked how far it is
NAMED = 3  # tables that fit into the line


class ProgressLine:
    """Tables under way, tasks done, elapsed; asked for from a thread of its own.

    Without a console nothing is shown. Not rich's Status: that one sends all of stdout to the
    console of the line, so data would come out on stderr.
    """

    def __init__(self, err: Console | None) -> None:
        self._doing = ""
        self._spinner = Spinner("dots")
        self._live = None if err is None else _live(err, self._spinner)
        self._started = time.monotonic()
        self._drawing = threading.Lock()  # the line, or what it makes room for
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._tables: DynamicTables | None = None

    def say(self, text: str) -> None:
        if self._live is None or self._stop.is_set():
            return
        self._doing = text
        self._draw(text)
        if self._thread is None:
            self._thread = threading.Thread(target=self._poll, daemon=True)
            self._thread.start()

    def watch(self, tables: DynamicTables, doing: str) -> None:
        """From now on, show what Spark is doing."""
        self._tables = tables
        self.say(doing)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Make room for other output; the line comes back by itself, after that."""
        with self._drawing:
            if self._live is not None:
                self._live.stop()
            yield

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self.paused():
            pass

    def _draw(self, text: str) -> None:
        assert self._live is not None
        elapsed = round(time.monotonic() - self._started)
        with self._drawing:
            self._spinner.update(text=Text(f"{text} · {elapsed} s"))
            self._live.start()

    def _poll(self) -> None:
        while not self._stop.wait(POLL_S):
            self._draw(f"{self._doing}{_under_way(self._tables)}")


def _under_way(tables: DynamicTables | None) -> str:
    """Tables and tasks, as far as Spark tells."""
    if tables is None:
        return ""
    try:
        found = tables.lake.progress()
        slices = [claim for claim in tables.store.claims() if claim.mode == "coordinator"]
    except (DynamicTablesError, *tables.lake.faults):
        return ""  # a refresh that ends just now; the work itself tells its errors
    done, tasks = sum(item.tasks_done for item in found), sum(item.tasks for item in found)
    names = ", ".join(item.label.split(" ", 1)[-1] for item in found[:NAMED])
    shared = "".join(f" · {c.subtasks_completed}/{c.subtasks_total} slices" for c in slices[:NAMED])
    return f"{': ' if names else ''}{names}{f' · {done}/{tasks} tasks' if tasks else ''}{shared}"


def _live(err: Console, spinner: Spinner) -> Live:
    return Live(spinner, console=err, transient=True, redirect_stdout=False, redirect_stderr=False)
