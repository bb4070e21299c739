"""What sqlglot prints of a query is what was written, as far as functions go."""

from __future__ import annotations

import re

import pytest

from dynamic_tables.compiler.parsing import parse
from spark_sql import SCALARS

# Another spelling of the same plan, which Spark confirms (spark/test_faithful).
RESPELLED = ("substr", "substring", "position", "current_date")
CALLS = [
    text
    for text in SCALARS
    if (name := re.match(r"([a-z_0-9]+)\(", text)) and name[1] not in RESPELLED
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_printed_as_written(call: str) -> None:
    printed = parse(f"SELECT {call} FROM r", "spark").sql(dialect="spark")
    assert printed.casefold() == f"SELECT {call} FROM r".casefold()


def test_there_are_many() -> None:
    assert len(CALLS) > 130
