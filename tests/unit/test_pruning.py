"""Literals are said only where they may leave out a part of a file; what is not known is a yes."""

from __future__ import annotations

from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from test_skipping import SCHEMA, stats

from dynamic_tables.compiler.emit import Side, Within
from dynamic_tables.lake.deltas import SparkLeaves
from dynamic_tables.lake.pruning import SMALL_FILE_BYTES, File, Files, Pruning
from dynamic_tables.lake.ranges import Spans
from dynamic_tables.lake.skipping import Wanted

LARGE = SMALL_FILE_BYTES + 1
MANY = tuple(range(0, 1000, 4))  # too many for a list, all over


def prune(column: str, values: tuple[Any, ...], *told: str | None, **more: Any) -> bool:
    files = [File(**{"stats": one, "bytes": LARGE} | more) for one in told]
    return Files(files, SCHEMA).prune(Wanted(column, values))


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("k", (3, 4, 5), stats("K", 0, 99)),  # neighbours, in a file that may be in order
        ("k", (3, 50, 90), stats("K", 0, 99)),  # far apart, but listed
        ("k", MANY, stats("K", 0, 2000)),
        ("k", MANY, stats("K", 0, 996, nulls=5)),  # rows without a value may lie together
        ("k", MANY, stats("K", 0, 996, nulls=None)),
        ("k", (None,), stats("K", 0, 99, nulls=5)),
        ("k", MANY, None),
        ("k", MANY, stats("K", 996, 0)),
        ("t", ("b", "c"), stats("col-1", "a", "d")),
        ("day", (date(2024, 1, 1),), stats("day", "2024-01-01", "2024-02-01")),
        ("d", MANY, stats("d", 0, 996)),  # a type whose bounds are not looked at
    ],
)
def test_said(column: str, values: tuple[Any, ...], told: str | None) -> None:
    assert prune(column, values, told)
    assert prune(column, values, stats("K", 2000, 2001), told)
    assert not prune(column, values, told, bytes=SMALL_FILE_BYTES)
    assert prune(column, values, told, bytes=1, in_order=True)


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("k", MANY, stats("K", 0, 996)),
        ("k", MANY, stats("K", -20, 1010)),  # nearly all
        ("k", MANY, stats("K", 500, 510)),
        ("k", (*MANY, None), stats("K", 0, 996, nulls=5)),
        ("k", (3, 4, 5), stats("K", 3, 5)),
        ("k", (3, 4, 5), stats("K", 6, 9)),  # is not read at all
        ("t", tuple(f"{n:03}" for n in range(201)), stats("col-1", "000", "200")),
        (
            "day",
            tuple(date(2024, 1, 1) + timedelta(days=n) for n in range(366)),
            stats("day", "2024-01-01", "2024-12-31"),
        ),
    ],
)
def test_not_said(column: str, values: tuple[Any, ...], told: str) -> None:
    assert not prune(column, values, told)
    assert not prune(column, values, told, told)


def test_ranges_of_many_values() -> None:
    """Are said if they leave out a part of a file that they meet."""
    near, all_over = Spans(((3, 5),), null=False), Spans(((0, 2000),), null=False)
    assert Files([File(stats=stats("K", 0, 99), bytes=LARGE)], SCHEMA).prune(Wanted("k", near))
    for wanted, told in ((near, (6, 9)), (near, (3, 5)), (all_over, (0, 1999))):
        files = Files([File(stats=stats("K", *told), bytes=LARGE)], SCHEMA)
        assert not files.prune(Wanted("k", wanted))


def test_a_table_without_files() -> None:
    assert not prune("k", MANY)


def pruning(code: str) -> Pruning:
    session: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda _key, _default: code))
    return Pruning(session)


def test_what_nothing_tells_is_said() -> None:
    """Delta skips files of tables that have many."""
    found, wanted = pruning("true"), Wanted("k", MANY)
    found._known = {("here", 1): None, ("here", 2): Files([], SCHEMA)}
    assert found.pays("here", 1, wanted)
    assert not found.pays("here", 2, wanted)


def test_where_no_code_is_generated_everything_is_said() -> None:
    assert pruning("false").pays("nowhere", 1, Wanted("k", MANY))


@pytest.mark.parametrize("prunes", [True, False])
def test_scans_of_sources_have_literals_where_they_prune(prunes: bool) -> None:
    leaves: Any = object.__new__(SparkLeaves)
    asked: list[Any] = []
    leaves._sources = {"s": SimpleNamespace(hidden=None)}
    leaves._known = {("keys", 0): (1, 2)}
    leaves._pin = lambda source, side: (source, side)
    leaves._prunes = lambda *given: asked.append(given) or prunes
    said = leaves.near("s", Side.AFTER, Within("keys", 0, "a"), "q.b")
    assert said == ("(q.b BETWEEN 1 AND 2) AND " if prunes else "")
    assert asked == [(("s", Side.AFTER), Wanted("a", (1, 2)))]
    assert leaves.near("s", Side.AFTER, Within("keys", 1, "a"), "q.b") == ""
