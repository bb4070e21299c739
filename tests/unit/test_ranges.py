"""Ranges of literals hold every value that they are made of, for every kind of value."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_tables.lake.ranges import RANGES_AT_MOST, condition, fewer, ranges

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.integers(-(2**40), 2**40) | st.integers(0, 30),
    "DECIMAL(38, 12)": st.decimals(-(10**20), 10**20, places=12) | st.decimals(0, 9, places=2),
    "DATE": st.dates(),
    "VARCHAR": st.text(alphabet="abcé ", max_size=5),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_value_is_in_a_range(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(KINDS[kind] | st.none(), min_size=1, max_size=40))
    known = sorted({value for value in values if value is not None})
    found = ranges(known)
    assert len(found) <= RANGES_AT_MOST
    assert all(any(a <= value <= b for a, b in found) for value in known)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_ranges_become_fewer_and_hold_what_they_held(kind: str, data: st.DataObject) -> None:
    ends = sorted(data.draw(st.sets(KINDS[kind], min_size=1, max_size=60)))
    spans = [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=False)] or [(ends[0], ends[0])]
    found = fewer(spans)
    assert len(found) <= RANGES_AT_MOST
    assert all(any(a <= low and high <= b for a, b in found) for low, high in spans)
    assert found == sorted(found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_reads_the_condition_alike(kind: str) -> None:
    examples: dict[str, list[Any]] = {
        "BIGINT": [3, 4, 5, 10**12, None],
        "DECIMAL(38, 12)": [Decimal("1E+3"), Decimal("0E-12"), Decimal("7.000000000001")],
        "DATE": [date(1, 1, 1), None],
        "VARCHAR": ["", "a", "z é", "\U0001f600"],
    }
    values = examples[kind]
    texts = [None if value is None else str(value) for value in values]
    query = f"FROM unnest(?::VARCHAR[]::{kind}[]) AS t(k) WHERE {condition('k', values)}"
    assert len(duckdb.execute(query, [texts]).fetchall()) == len(values)


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\tb", "a\\b", "it's", "${a}"])
def test_texts_that_sessions_may_read_otherwise_have_no_literal(text: str) -> None:
    """Spark writes a line feed with a backslash, which some sessions take for two characters."""
    assert condition("k", ["a", text]) is None


def test_decimals_are_never_written_as_doubles() -> None:
    said = condition("k", [Decimal("1E+3"), Decimal("0E-12")])
    assert said is not None
    assert "E" not in said.replace("BETWEEN", "")
