"""What people are told: names are names, mistakes are called so, old news is told as old."""

from __future__ import annotations

from datetime import timedelta

import pytest

import dynamic_tables as dt
from dynamic_tables.render.tables import behind_text
from dynamic_tables.schedule import Lag


def test_names_are_names(tables: dt.DynamicTables) -> None:
    """Those that reports have, too; a list of names is none."""
    tables.sql("CREATE TABLE r (a INT, b INT)")
    tables.create("kept", "SELECT a FROM r WHERE b > 1")
    [record] = tables.refresh().records
    assert tables.verify(record.table).ok
    with pytest.raises(dt.InvalidInput, match="one by one"):
        tables.refresh(["kept"])  # ty: ignore[invalid-argument-type]
    with pytest.raises(dt.InvalidInput) as unknown:
        tables.explain("kpet")
    assert unknown.value.reason == "UNKNOWN_TABLE"


def test_a_hint_names_the_nearest_tables(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE r (a INT)")
    for number in range(12):
        tables.create(f"a{number:02}", "SELECT a FROM r", initialize="on_schedule")
    tables.create("orders_by_day", "SELECT a FROM r", initialize="on_schedule")
    with pytest.raises(dt.InvalidInput) as unknown:
        tables.show("order_by_day")
    hint = str(unknown.value.hint)
    assert hint.startswith("there are: main.orders_by_day, ")
    assert len(hint.split(", ")) == 10


def test_strategies_that_are_not_possible(tables: dt.DynamicTables) -> None:
    tables.sql("CREATE TABLE r (a INT, b INT)")
    tables.create("kept", "SELECT a FROM r WHERE b > 1")
    tables.sql("INSERT INTO r VALUES (1, 2)")
    assert "not by: merge (NO_INVERSE), keys (NO_KEY)" in str(tables.explain("kept"))
    report = tables.refresh("kept", strategy="keys", on_error="report")
    assert "possible are" in (report["kept"].note or "")
    assert "append" in (report["kept"].note or "")


@pytest.mark.parametrize(
    ("behind_s", "seen_s", "told"),
    [(0.0, 5.0, "no"), (0.0, 300.0, "no, 5 minutes ago"), (120.0, 300.0, "2 minutes")],
)
def test_old_news(tables: dt.DynamicTables, behind_s: float, seen_s: float, told: str) -> None:
    """That a table was not behind when somebody looked says nothing of now."""
    tables.sql("CREATE TABLE r (a INT)")
    tables.create("kept", "SELECT a FROM r")
    [lag] = tables.lags("kept")
    assert lag.seen_s is not None
    assert timedelta(seconds=lag.seen_s) < timedelta(minutes=1)
    other = Lag(
        table=lag.table,
        target_s=None,
        behind_s=behind_s,
        seen_s=seen_s,
        within=None,
        next_refresh=None,
    )
    assert behind_text(other) == told
