"""Metrics: every one is documented, has its panel, and tells the truth."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import generate_latest

import dynamic_tables as dt
from dynamic_tables.metrics import PREFIX, Metrics
from dynamic_tables.refresh.context import SliceNews

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dt.DynamicTables]:
    folder = tmp_path_factory.mktemp("metrics") / "lake"
    with dt.connect(f"ducklake:{folder}", say=lambda _: None) as opened:
        opened.sql("CREATE TABLE orders AS SELECT 1 AS amount")
        opened.create("total", "SELECT sum(amount) AS n FROM orders", trigger_on_change=True)
        opened.create("slow", "SELECT amount FROM orders", target_lag="1 hour")
        yield opened


@pytest.fixture(scope="module")
def metrics(tables: dt.DynamicTables) -> Metrics:
    """After one refresh of `total`; `slow` is behind."""
    made = Metrics(tables)
    tables.sql("INSERT INTO orders VALUES (2)")
    tables.worker(slots=1, say=lambda _: None, tell=made.observe).drain()
    return made


def names(metrics: Metrics) -> set[str]:
    text = generate_latest(metrics.registry).decode()
    return {name for name in re.findall(r"^# TYPE (\w+)", text, re.MULTILINE) if not _extra(name)}


def _extra(name: str) -> bool:
    return name.endswith("_created")  # the client's own, of every counter and histogram


def documented() -> dict[str, set[str]]:
    """The labels of each metric."""
    page = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| `({PREFIX}_\w+)` \| ([^|]*)\|", page, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def test_every_metric_is_documented(metrics: Metrics) -> None:
    assert sorted(documented()) == sorted(names(metrics))
    for family in metrics.registry.collect():
        for sample in family.samples:
            name = re.sub(r"_(bucket|count|sum)$", "", sample.name)
            assert _extra(name) or documented()[name] == set(sample.labels) - {"le"}


def test_the_dashboard_shows_every_metric(metrics: Metrics) -> None:
    board = json.loads((ROOT / "examples" / "grafana.json").read_text())
    asked = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    used = re.findall(rf"{PREFIX}_\w+", asked)
    assert {re.sub(r"_bucket$", "", name) for name in used} == names(metrics)


def test_the_dashboard_asks_by_labels_that_are_there() -> None:
    board = json.loads((ROOT / "examples" / "grafana.json").read_text())
    for target in (target for panel in board["panels"] for target in panel["targets"]):
        asked = target["expr"]
        used = [re.sub(r"_bucket$", "", name) for name in re.findall(rf"{PREFIX}_\w+", asked)]
        by = {name for found in re.findall(r"by \(([^)]*)\)", asked) for name in found.split(", ")}
        labels = by | set(re.findall(r"(\w+)=~", asked))
        assert all(labels - {"le"} <= documented()[name] for name in used), asked
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= by, asked


def test_the_figures_are_those_of_the_refresh(tables: dt.DynamicTables, metrics: Metrics) -> None:
    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"{PREFIX}_{name}", labels)

    assert value("refreshes_total", table="main.total", strategy="merge", outcome="done") == 1
    assert value("refresh_seconds_count", table="main.total") == 1
    assert value("rows_total", table="main.total", change="inserted") is not None
    assert value("lag_seconds", table="main.total") == 0
    assert (value("lag_seconds", table="main.slow") or 0) > 0
    assert value("target_lag_seconds", table="main.slow") == 3600
    assert value("within_target_ratio", table="main.slow") == 1
    (due,) = [lag.next_refresh for lag in tables.lags("slow")]
    assert due is not None
    assert value("next_refresh_timestamp_seconds", table="main.slow") == due.timestamp()
    assert value("next_refresh_timestamp_seconds", table="main.total") is None
    assert (value("queue_length"), value("workers_alive"), value("store_up")) == (0, 0, 1)


def test_what_nobody_has_looked_at_is_not_told(tables: dt.DynamicTables, metrics: Metrics) -> None:
    def value(name: str, table: str) -> float | None:
        return metrics.registry.get_sample_value(f"{PREFIX}_{name}", {"table": table})

    flags = {"target_lag": "1 hour", "initialize": "ON_SCHEDULE"}
    tables.create("unseen", "SELECT amount FROM orders", **flags)
    assert value("target_lag_seconds", "main.unseen") == 3600
    for name in ("lag_seconds", "lag_age_seconds", "within_target_ratio"):
        assert value(name, "main.unseen") is None, name
        assert value(name, "main.slow") is not None, name
    tables.drop("unseen")


def test_slices_are_counted(tables: dt.DynamicTables, metrics: Metrics) -> None:
    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"{PREFIX}_{name}", {"table": "main.total"})

    for news in (
        SliceNews(table="main.total", what="created", count=4),
        SliceNews(table="main.total", what="completed", seconds=3.0),
        SliceNews(table="main.total", what="failed"),
        SliceNews(table="main.total", what="waited", seconds=2.0),
    ):
        metrics.hear(news)
    metrics.observe(replace(tables.history("total")[0], slices=4))
    assert value("subtasks_created_total") == 4
    assert (value("subtasks_completed_total"), value("subtasks_failed_total")) == (1, 1)
    assert (value("subtask_seconds_sum"), value("coordinator_wait_seconds_sum")) == (3, 2)
    assert (value("parallel_refreshes_total"), value("parallel_refresh_seconds_count")) == (1, 1)


def test_a_store_that_is_away_is_a_figure(metrics: Metrics, tmp_path: Path) -> None:
    with dt.connect(f"ducklake:{tmp_path / 'lake'}", say=lambda _: None) as away:
        away.lags = lambda: (_ for _ in ()).throw(  # ty: ignore
            dt.SetupError("away", reason=dt.Reason.STORE_BROKEN)
        )
        text = generate_latest(Metrics(away).registry).decode()
    assert f"{PREFIX}_store_up 0.0" in text
    assert f"{PREFIX}_queue_length" not in text


def test_prometheus_is_answered(metrics: Metrics) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    metrics.serve(port)
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert f"{PREFIX}_workers_alive" in answer.read().decode()
    with pytest.raises(dt.SetupError):
        metrics.serve(port)
