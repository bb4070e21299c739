"""Statements of DuckDB do not look for pandas with every value, and hide it from nobody."""

from __future__ import annotations

import sys

import duckdb
import pytest

from dynamic_tables.lake.duck import connection


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that Python looks for from now on."""
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    asked: list[str] = []

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            asked.append(name)

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    return asked


def test_a_missing_pandas_is_missed_once(
    searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_has_pandas", lambda: False)
    raw = duckdb.connect()
    raw.execute("SELECT ?", ["one"])
    assert "pandas" in searches, "DuckDB no longer looks: the detour may go"
    searches.clear()
    assert connection.Connection(raw).execute("SELECT ?", ["one"]).fetchone() == ("one",)
    assert "pandas" not in searches
    assert "pandas" not in sys.modules  # an import finds it, should it come later


def test_a_pandas_that_is_there_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    there = type(sys)("pandas")
    monkeypatch.setitem(sys.modules, "pandas", there)
    with connection._pandas_is_missing():
        assert sys.modules["pandas"] is there
    assert sys.modules["pandas"] is there
