"""The verbs that keep tables fresh: run, worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from dynamic_tables.app import DynamicTables
from dynamic_tables.cli.looking import report_text
from dynamic_tables.cli.program import INTERRUPTED, verb
from dynamic_tables.cli.session import Invocation
from dynamic_tables.errors import RefreshFailed, SetupError
from dynamic_tables.model import RefreshRecord, RefreshReport
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.context import SliceNews
from dynamic_tables.render import record_text, slice_text
from dynamic_tables.schedule import unconsumed
from dynamic_tables.worker import Worker

if TYPE_CHECKING:
    from dynamic_tables.metrics import Metrics  # prometheus_client is an extra

STDERR = 2
AT_ONCE = b"stopped at once; what was under way is taken over and completed by the next worker\n"
METRICS_PORT = click.option(
    "--metrics-port", type=click.IntRange(1, 65535), help="answer Prometheus on this port"
)


@verb("run")
@click.option("--once", is_flag=True, help="refresh what is due now, then end")
@METRICS_PORT
def run(run: Invocation, once: bool, metrics_port: int | None) -> None:
    """Keep tables fresh, in this process alone."""
    with run.tables("keeping tables fresh:") as tables:
        _warn(run, tables)
        if once:
            _once(run, tables)
        else:
            _work(run, tables, slots=run.settings["threads"], metrics_port=metrics_port)


@verb("worker")
@METRICS_PORT
def worker(run: Invocation, metrics_port: int | None) -> None:
    """Keep tables fresh, together with other workers on one store."""
    if not run.settings["store"]:
        raise SetupError(
            "workers share a store",
            reason=Reason.STORE_MISSING,
            about="worker",
            hint="dynamic-tables worker --store postgresql://user@host/database, or on one machine"
            " --store sqlite:////path/to/lake/dynamic_tables.db; `dynamic-tables run` needs none",
        )
    with run.tables("working:") as tables:
        _warn(run, tables)
        _work(run, tables, slots=1, metrics_port=metrics_port)


def _once(run: Invocation, tables: DynamicTables) -> None:
    log = Log(run, None)
    made = tables.worker(slots=1, say=log.say)
    log.when_unheard = made.stop
    records = tuple(made.drain())
    log.check_heard()
    report = RefreshReport(refresh_id=records[0].refresh_id if records else "", records=records)
    shown = report_text(report) if records else Text("nothing is due")
    run.show([record.as_json() for record in records], shown)
    if not report.ok:
        raise RefreshFailed(report)


def _work(run: Invocation, tables: DynamicTables, *, slots: int, metrics_port: int | None) -> None:
    log = Log(run, _served(tables, metrics_port))
    made = tables.worker(slots=slots, say=log.say, tell=log.tell, hear=log.hear)
    log.when_unheard = made.stop
    with _signals(made):
        run.note(f"keeping tables fresh as process {os.getpid()}; SIGTERM or Ctrl-C ends it")
        made.run()
    log.check_heard()


def _served(tables: DynamicTables, port: int | None) -> Metrics | None:
    if port is None:
        return None
    from dynamic_tables.metrics import Metrics  # noqa: PLC0415  prometheus_client is an extra

    metrics = Metrics(tables)
    metrics.serve(port)
    return metrics


class Log:
    """What a worker does, counted and told as it happens: a line for each refresh and slice.

    Where results cannot be printed any more (`run | head`, a full disk), the worker ends as after a
    signal: what is under way is settled first. Words on stderr may be lost, and nothing ends.
    """

    def __init__(self, run: Invocation, metrics: Metrics | None) -> None:
        self._run, self._metrics = run, metrics
        self._failed: OSError | None = None
        self.when_unheard: Callable[[], None] = lambda: None

    def tell(self, record: RefreshRecord) -> None:
        if self._metrics is not None:
            self._metrics.observe(record)
        self._print(record.as_json(), record_text(record))

    def hear(self, news: SliceNews) -> None:
        if self._metrics is not None:
            self._metrics.hear(news)
        if news.what != "waited":  # that is a figure, no event
            self._print(news.as_json(), slice_text(news))

    def say(self, words: str) -> None:
        self._run.note(words)

    def check_heard(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _print(self, data: Any, shown: Text) -> None:
        """In whatever thread: a slot must not end because nobody listens."""
        try:
            self._run.line(data, shown)
        except OSError as error:
            self._failed = error
            self.when_unheard()


@contextmanager
def _signals(worker: Worker) -> Generator[None]:
    """The first signal lets what is under way end; the second stops at once, which loses nothing:
    claims are taken over, and their refreshes completed."""
    asked = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            with suppress(OSError):  # nobody may be there to read it
                os.write(STDERR, AT_ONCE)  # the console may be in the middle of a line
            os._exit(INTERRUPTED)
        asked = True
        worker.stop()

    before = {kind: signal.signal(kind, ask) for kind in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _warn(run: Invocation, tables: DynamicTables) -> None:
    graph = tables.graph()
    for table_id in unconsumed(graph):
        run.note(
            f"{graph[table_id].name} has TARGET_LAG = DOWNSTREAM, and nothing that reads it is kept"
            " fresh: it is never refreshed"
        )


VERBS = (run, worker)
