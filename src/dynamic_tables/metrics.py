"""Figures for Prometheus: what this worker does, and how all tables are.

Counters and histograms are of this process; lags, queue and workers are asked of the store with
every scrape, so that any one worker can tell them. `docs/workers.md` has each of them, and a test
compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dynamic_tables.app import DynamicTables
from dynamic_tables.errors import DynamicTablesError, SetupError
from dynamic_tables.model import Outcome, RefreshRecord
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.context import SliceNews

try:
    import prometheus_client as prometheus
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise SetupError(
        "prometheus_client is not installed",
        reason=Reason.BAD_SETTING,
        about="--metrics-port",
        hint="pip install 'spark-dynamic-tables[metrics]'",
    ) from missing

PREFIX = "dynamic_tables"
SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)  # of refreshes, short to long
SHARES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # of affected keys


class Metrics:
    """All figures, in a registry of their own."""

    def __init__(self, tables: DynamicTables) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._refreshes = self._counter(
            "refreshes", "Refreshes by table, strategy and outcome.", ("strategy", "outcome")
        )
        self._rows = self._counter("rows", "Rows inserted, updated and deleted.", ("change",))
        self._bytes = self._counter("bytes", "Bytes read and written.", ("direction",))
        self._seconds = self._histogram("refresh_seconds", "Duration of refreshes.", SECONDS)
        self._ratio = self._histogram(
            "cardinality_ratio", "Affected keys as a share of the stored rows.", SHARES
        )
        self._shared = self._counter("parallel_refreshes", "Refreshes that workers shared.", ())
        self._shared_seconds = self._histogram(
            "parallel_refresh_seconds", "Duration of refreshes that workers shared.", SECONDS
        )
        self._slices = {
            what: self._counter(f"subtasks_{what}", f"Slices that were {what}.", ())
            for what in ("created", "completed", "failed")
        }
        self._slice_seconds = self._histogram(
            "subtask_seconds", "How long a slice took to compute.", SECONDS
        )
        self._waited = self._histogram(
            "coordinator_wait_seconds", "How long coordinators had nothing to do.", SECONDS
        )
        self.registry.register(_FromStore(tables))

    def _counter(self, name: str, doc: str, labels: tuple[str, ...]) -> Any:
        return prometheus.Counter(
            f"{PREFIX}_{name}", doc, ("table", *labels), registry=self.registry
        )

    def _histogram(self, name: str, doc: str, buckets: tuple[float, ...]) -> Any:
        return prometheus.Histogram(
            f"{PREFIX}_{name}", doc, ("table",), buckets=buckets, registry=self.registry
        )

    def observe(self, record: RefreshRecord) -> None:
        """Count one refresh."""
        table, work = str(record.table), record.work
        strategy = record.strategy.value if record.strategy else "none"
        self._refreshes.labels(table, strategy, record.outcome.value).inc()
        if record.outcome is Outcome.DONE:
            self._seconds.labels(table).observe(record.duration_ms / 1000)
        if record.slices is not None:
            self._shared.labels(table).inc()
            self._shared_seconds.labels(table).observe(record.duration_ms / 1000)
        for change in ("inserted", "updated", "deleted"):
            self._rows.labels(table, change).inc(getattr(work, f"rows_{change}") or 0)
        for direction in ("read", "written"):
            self._bytes.labels(table, direction).inc(getattr(work, f"bytes_{direction}") or 0)
        if work.cardinality_ratio is not None:
            self._ratio.labels(table).observe(work.cardinality_ratio)

    def hear(self, news: SliceNews) -> None:
        """Count what this worker did for a refresh that is shared."""
        if news.what == "waited":
            self._waited.labels(news.table).observe(news.seconds)
            return
        self._slices[news.what].labels(news.table).inc(news.count)
        if news.what == "completed":
            self._slice_seconds.labels(news.table).observe(news.seconds)

    def serve(self, port: int) -> None:
        """Answer scrapes on this port until the process ends."""
        try:
            prometheus.start_http_server(port, registry=self.registry)
        except OSError as error:
            raise SetupError(
                f"the port cannot be used: {error.strerror}",
                reason=Reason.BAD_SETTING,
                about=f"--metrics-port {port}",
                hint="choose another port",
            ) from error


class _FromStore(Collector):
    """What the store knows, asked with every scrape."""

    def __init__(self, tables: DynamicTables) -> None:
        self._tables = tables

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Names only: the store is not asked when this is registered."""
        yield from _families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up, lag, age, target, within, due, queue, workers = _families()
        try:
            lags = self._tables.lags()
            queued, alive = self._tables.store.pending(), self._tables.store.workers()
        except DynamicTablesError:  # the store is away: that is a figure too
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        queue.add_metric([], len(queued))
        workers.add_metric([], len(alive))
        for found in lags:
            name = [str(found.table)]
            next_ = found.next_refresh
            for family, value in (
                (lag, found.behind_s),
                (age, found.seen_s),
                (target, found.target_s),
                (within, found.within),
                (due, next_.timestamp() if next_ is not None else None),
            ):
                if value is not None:
                    family.add_metric(name, value)
        yield from (up, lag, age, target, within, due, queue, workers)


def _families() -> tuple[GaugeMetricFamily, ...]:
    def gauge(name: str, doc: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{PREFIX}_{name}", doc, labels=labels)

    return (
        gauge("store_up", "Whether the store answers."),
        gauge("lag_seconds", "How far a table is behind its base tables.", "table"),
        gauge("lag_age_seconds", "How long ago somebody looked how far it is behind.", "table"),
        gauge("target_lag_seconds", "How far it may be behind.", "table"),
        gauge("within_target_ratio", "Share of the last day within the target.", "table"),
        gauge("next_refresh_timestamp_seconds", "When a table is refreshed next.", "table"),
        gauge("queue_length", "Tables that wait for a refresh or are being refreshed."),
        gauge("workers_alive", "Workers whose heartbeat is fresh."),
    )
