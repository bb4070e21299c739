# ruff: noqa: E501  tables of cases read best with one case a line
"""Hostile identifiers round-trip or fail cleanly, and nothing outside the table's own files is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from identifiers import (
    FEED,
    HALVES,
    IDENTIFIERS,
    RESERVED,
    SUBSTITUTED,
    is_plain,
    without_twins,
)
from lakes import files, snapshot

import dynamic_tables as dt
from dynamic_tables.ddl import CreateStatement
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.names import literal, quote, split_name
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason
from oracle import check

pytestmark = pytest.mark.spark

CHARACTERS = [name for name in IDENTIFIERS if name not in HALVES]
LEGAL = without_twins([n for n in CHARACTERS if n not in (*RESERVED, *FEED, *SUBSTITUTED)])
COLUMNS, ALIASES = LEGAL[::2], LEGAL[1::2]  # each name is tried in one of the two ways
ODD = [name for name in IDENTIFIERS if not is_plain(name)]  # no name of a table in Spark's catalog


def bare(name: str) -> str:
    """The name as it is, without back-ticks, unless that happens to mean a good one: `id`."""
    try:
        fine = all(map(is_plain, split_name(name)))
    except DynamicTablesError:
        fine = False
    return quote(name) if fine else name


class Lake(NamedTuple):
    tables: dt.DynamicTables
    folder: Path  # the lake's parent: what must not be touched lies here too


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("identifiers")
    (folder / "x").mkdir()
    (folder / "x" / "precious").write_text("stay")
    with dt.connect(folder / "lake", jvm="quick", say=lambda _: None) as tables:
        tables.sql("CREATE TABLE orders (id INT) USING delta")
        tables.create("standing", "SELECT id FROM orders", initialize="ON_SCHEDULE")
        yield Lake(tables, folder)


def test_there_are_three_hundred() -> None:
    assert len(set(IDENTIFIERS)) >= 300
    assert len(COLUMNS) >= 100
    assert len(ALIASES) >= 100
    assert len(ODD) >= 200


def test_every_identifier_survives_quoting() -> None:
    for name in IDENTIFIERS:
        assert split_name(f"{quote(name)}.{quote(name)}") == (name, name)


def test_columns_round_trip(lake: Lake) -> None:
    """All at once: a load, a change, a refresh; names and values come back exactly."""
    tables = lake.tables
    columns = ", ".join(f"{quote(name)} INT" for name in COLUMNS)
    tables.spark.sql(
        f"CREATE TABLE odd ({columns}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    tables.spark.sql(f"INSERT INTO odd VALUES ({', '.join(map(str, range(len(COLUMNS))))})")
    beside = files(lake.folder / "x")
    tables.create("odd_copy", "SELECT * FROM odd")
    tables.spark.sql(
        f"INSERT INTO odd VALUES ({', '.join(map(str, range(1000, 1000 + len(COLUMNS))))})"
    )
    tables.refresh("odd_copy")

    frame = tables.read("odd_copy")
    assert frame.columns == COLUMNS
    assert [column.name for column in tables.show("odd_copy").definition.columns] == COLUMNS
    rows = sorted(tuple(row) for row in frame.collect())
    assert rows == [tuple(range(start, start + len(COLUMNS))) for start in (0, 1000)]
    check(tables, "odd_copy")
    assert files(lake.folder / "x") == beside
    assert sorted(path.name for path in lake.folder.iterdir()) == ["lake", "x"]


def test_comment_and_literals_round_trip(lake: Lake) -> None:
    """Through SQL text: in COMMENT, in string literals and in the definition that the lake keeps."""
    tables = lake.tables
    comment = "|".join(CHARACTERS)
    text = "|".join(name for name in CHARACTERS if name not in SUBSTITUTED)
    query = f"SELECT {literal(text)} AS text"
    tables.sql(f"CREATE DYNAMIC TABLE told COMMENT {literal(comment)} AS {query}")

    assert tables.read("told").collect()[0].text == text
    state = tables.show("told")
    assert state.definition.options.comment == comment
    assert tables.lake.standing(state.definition).definition == state.definition
    detail = tables.spark.sql("DESCRIBE DETAIL told").collect()[0]
    assert detail.description == comment


def test_names_inside_a_query_round_trip(lake: Lake) -> None:
    """As CTE, as alias of a table, as alias of a column and back, many in one query."""
    for chunk in (ALIASES[start : start + 50] for start in range(0, len(ALIASES), 50)):
        tables = ", ".join(f"{quote(n)} AS (SELECT {i} AS {quote(n)})" for i, n in enumerate(chunk))
        columns = ", ".join(f"{quote(n)}.{quote(n)}" for n in chunk)
        sources = ", ".join(f"{quote(n)} AS {quote(n)}" for n in chunk)
        explained = lake.tables.explain(f"WITH {tables} SELECT {columns} FROM {sources}")
        assert [name for name, _ in explained.columns] == chunk
        assert explained.sources == ()  # no CTE was taken for a table


def outcomes(lake: Lake, attempt: Callable[[str], object]) -> dict[str, Reason | str]:
    """What an attempt with each odd name ends in; anything but our own error is told by its type."""
    before = snapshot(lake.tables, lake.folder)
    found: dict[str, Reason | str] = {}
    for name in ODD:
        try:
            attempt(name)
        except DynamicTablesError as error:
            found[name] = error.reason if error.hint else f"{error.reason} without a hint"
        except Exception as error:  # noqa: BLE001  the test says which
            found[name] = f"{type(error).__name__}: {error}"[:200]
        else:
            found[name] = "nothing was raised"
    assert snapshot(lake.tables, lake.folder) == before
    return found


REFUSALS = {Reason.BAD_NAME, Reason.RESERVED_NAME, Reason.SYNTAX, Reason.UNKNOWN_TABLE}
ATTEMPTS: dict[str, Callable[[dt.DynamicTables, str], object]] = {
    "create": lambda t, n: t.create(quote(n), "SELECT 1 AS x"),
    "create in a schema": lambda t, n: t.create(f"{quote(n)}.t", "SELECT 1 AS x"),
    "create in SQL": lambda t, n: t.sql(f"CREATE DYNAMIC TABLE {quote(n)} AS SELECT 1 AS x"),
    "create without back-ticks": lambda t, n: t.create(bare(n), "SELECT 1 AS x"),
    "create, parsed": lambda t, n: t.execute(
        CreateStatement(parts=(n,), query="SELECT 1 AS x", options=Options())
    ),
    "rename": lambda t, n: t.alter("standing", rename_to=quote(n)),
    "drop": lambda t, n: t.drop(quote(n)),
    "drop without back-ticks": lambda t, n: t.drop(bare(n)),
    "drop in SQL": lambda t, n: t.sql(f"DROP DYNAMIC TABLE {quote(n)} CASCADE"),
    "history": lambda t, n: t.history(quote(n)),
    "refresh": lambda t, n: t.refresh(quote(n)),
    "read": lambda t, n: t.read(quote(n)),
    "suspend": lambda t, n: t.suspend(quote(n)),
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_odd_table_names_fail_cleanly(lake: Lake, what: str) -> None:
    found = outcomes(lake, lambda name: ATTEMPTS[what](lake.tables, name))
    assert {name: end for name, end in found.items() if end not in REFUSALS} == {}


def test_odd_sources_fail_cleanly(lake: Lake) -> None:
    before = snapshot(lake.tables, lake.folder)
    allowed = {Reason.UNKNOWN_SOURCE, Reason.SYNTAX}
    for name in ODD[::5]:
        with pytest.raises(DynamicTablesError) as caught:
            lake.tables.explain(f"SELECT * FROM {quote(name)}")
        assert caught.value.reason in allowed, name
    assert snapshot(lake.tables, lake.folder) == before


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names_are_ours(lake: Lake, name: str) -> None:
    for declare in (
        lambda: lake.tables.create(name, "SELECT 1 AS x"),
        lambda: lake.tables.explain(f"SELECT 1 AS {name}"),
    ):
        with pytest.raises(DynamicTablesError) as caught:
            declare()
        assert caught.value.reason is Reason.RESERVED_NAME


@pytest.mark.parametrize("name", FEED)
def test_columns_of_the_change_feed_are_deltas(lake: Lake, name: str) -> None:
    with pytest.raises(DynamicTablesError) as caught:
        lake.tables.create("fed", f"SELECT 1 AS {name}")
    assert caught.value.reason is Reason.RESERVED_NAME
    assert name in str(caught.value)


@pytest.mark.parametrize("name", SUBSTITUTED)
def test_what_spark_would_replace_is_no_column(lake: Lake, name: str) -> None:
    """A column may be called so (made through DataFrames); Spark's SQL could not name it."""
    location = f"{lake.folder}/lake/warehouse/replaced"
    tables = lake.tables
    if not Path(location).exists():
        frame = tables.spark.range(1).toDF("id")
        for odd in SUBSTITUTED:
            frame = frame.withColumn(odd, frame["id"])
        frame.write.format("delta").option("delta.columnMapping.mode", "name").save(location)
    with pytest.raises(DynamicTablesError) as caught:
        tables.explain(f"SELECT * FROM delta.`{location}`")
    assert caught.value.reason is Reason.BAD_COLUMNS
    with pytest.raises(DynamicTablesError) as caught:
        tables.explain(f"SELECT id AS {quote(name)} FROM orders")
    assert caught.value.reason is Reason.SYNTAX


@pytest.mark.parametrize("name", ["select", "1abc", "MiXeD_cAsE"])
def test_plain_names_work_whatever_they_mean(lake: Lake, name: str) -> None:
    tables = lake.tables
    before = files(lake.folder)
    tables.create(quote(name), "SELECT id FROM orders", initialize="ON_SCHEDULE")
    assert tables.show(quote(name.upper())).definition.name.name == name
    assert tables.explain(f"SELECT * FROM {quote(name)}").sources == (f"default.{_shown(name)}",)
    tables.drop(quote(name))
    assert files(lake.folder) == before


def _shown(name: str) -> str:
    return name if name.isidentifier() else quote(name)
