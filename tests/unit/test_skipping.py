"""A file is left out only if its statistics say for sure that it holds nothing that is wanted."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from dynamic_tables.lake.ranges import Spans
from dynamic_tables.lake.skipping import Wanted, kept

FIELDS: list[dict[str, Any]] = [
    {"name": "K", "type": "long", "metadata": {}},
    {"name": "day", "type": "date", "metadata": {}},
    {"name": "t", "type": "string", "metadata": {"delta.columnMapping.physicalName": "col-1"}},
    {"name": "c", "type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}},
    {"name": "d", "type": "decimal(9,2)", "metadata": {}},
    {"name": "s", "type": {"type": "struct", "fields": []}, "metadata": {}},
]
SCHEMA = json.dumps({"type": "struct", "fields": FIELDS})


def stats(name: str, low: Any, high: Any, nulls: int | None = 0, **more: Any) -> str:
    found: dict[str, Any] = {"numRecords": 9, "minValues": {name: low}, "maxValues": {name: high}}
    return json.dumps(found | ({} if nulls is None else {"nullCount": {name: nulls}}) | more)


def is_kept(told: str | None, column: str, *values: Any) -> bool:
    return kept([told], [Wanted(column, values)], SCHEMA) == [0]


@pytest.mark.parametrize(
    ("told", "column", "values"),
    [
        (stats("K", 5, 9), "k", (4, 10)),  # between the values, whatever the column's case
        (stats("K", 5, 9, tightBounds=False), "K", (4,)),  # some rows are gone: bounds still hold
        (stats("K", 5, 9), "k", (None,)),
        (stats("K", 5, 9), "k", ()),
        (stats("day", "2024-01-01", "2024-02-01"), "day", (date(2024, 2, 2),)),
        (stats("col-1", "b", "c"), "t", ("a", "ca")),
        (stats("col-1", "a", "a\U0010ffff"), "t", ("b",)),  # cut, with the greatest sign behind
    ],
)
def test_left_out(told: str, column: str, values: tuple[Any, ...]) -> None:
    assert not is_kept(told, column, *values)


@pytest.mark.parametrize(
    ("told", "column", "values"),
    [
        (stats("K", 5, 9), "k", (1, 5)),
        (stats("K", 5, 9), "k", (9, 11)),
        (stats("K", 5, 9, nulls=1), "k", (1, None)),
        (stats("K", 5, 9, nulls=None), "k", (1, None)),  # nobody counted
        (stats("col-1", "a", "a\U0010ffff"), "t", ("ab",)),
        (stats("day", "2024-01-01", "2024-02-01"), "day", (date(2024, 1, 1),)),
        (None, "k", (1,)),
        ("", "k", (1,)),
        ("{", "k", (1,)),
        ("[]", "k", (1,)),
        ('{"numRecords": 9}', "k", (1,)),
        ('{"minValues": {"K": 5}}', "k", (1,)),
        (stats("K", None, None), "k", (1,)),  # only rows without a value
        (stats("K", 5.5, 9.5), "k", (1,)),
        (stats("K", True, True), "k", (7,)),
        (stats("K", "5", "9"), "k", (1,)),
        (stats("K", 9, 5), "k", (1,)),  # upside down
        (stats("t", "b", "c"), "t", ("a",)),  # of another column, that has this name no longer
        (stats("col-1", "b\ufffd", "c"), "t", ("a",)),
        (stats("col-1", "b", "c\ud800"), "t", ("d",)),
        (stats("day", "12024-01-01", "12024-02-01"), "day", (date(2024, 2, 2),)),
        (stats("c", "a", "a"), "c", ("a  ",)),  # Spark fills them up when it reads them
        (stats("d", 5.0, 9.0), "d", (Decimal(1),)),  # some writers round them
        (stats("K", 5, 9), "k", ("1",)),
        (stats("K", 5, 9), "k", (True,)),
        (stats("K", 5, 9), "none", (1,)),
        (stats("s", 5, 9), "s", (1,)),
    ],
)
def test_kept(told: str | None, column: str, values: tuple[Any, ...]) -> None:
    assert is_kept(told, column, *values)


@pytest.mark.parametrize(
    ("spans", "files"),
    [
        (Spans(((1, 4), (10, 12)), null=False), [0, 2]),
        (Spans(((1, 4), (10, 12)), null=True), [0, 2, 3]),
        (Spans(((6, 7),), null=False), [1]),
        (Spans((), null=True), [3]),
        (Spans((("a", "b"),), null=False), [0, 1, 2, 3]),  # of another type than the column's
    ],
)
def test_many_values_by_their_ranges(spans: Spans, files: list[int]) -> None:
    told = [stats("K", 0, 1), stats("K", 5, 9), stats("K", 12, 20), stats("K", 30, 40, nulls=1)]
    assert kept(told, [Wanted("k", spans)], SCHEMA) == files


def test_every_column_may_leave_a_file_out() -> None:
    both = json.loads(stats("K", 5, 9))
    both["minValues"]["day"], both["maxValues"]["day"] = "2024-01-01", "2024-01-31"
    wanted = [Wanted("k", (7,)), Wanted("day", (date(2024, 3, 1),)), Wanted("d", (Decimal(1),))]
    files = [json.dumps(both), stats("K", 5, 9), stats("K", 1, 2)]
    assert kept(files, wanted, SCHEMA) == [1]
    assert kept(files, [], SCHEMA) == [0, 1, 2]
