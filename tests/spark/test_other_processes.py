"""What other processes make of the catalog, which each process has in its own memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import dynamic_tables as dt
from dynamic_tables.lake.sessions import private_session
from oracle import check

pytestmark = pytest.mark.spark
Open = Callable[..., dt.DynamicTables]


def test_names_that_others_make_replace_and_drop(open_lake: Open) -> None:
    here = open_lake()
    here.sql("CREATE TABLE r (a INT) USING delta")
    here.sql("INSERT INTO r VALUES (1), (2), (3)")
    here.sql("CREATE VIEW large AS SELECT a FROM r WHERE a > 1")
    here.create("counted", "SELECT count(*) AS n FROM large")
    there = open_lake()  # with a catalog of its own

    here.sql("CREATE OR REPLACE VIEW large AS SELECT a FROM r WHERE a > 2")
    here.sql("CREATE TABLE later (b INT) USING delta")
    here.sql("INSERT INTO later VALUES (7)")
    here.create("kept", "SELECT b FROM later")
    here.sql("INSERT INTO later VALUES (8)")
    there.sql("CREATE TABLE other (c INT) USING delta")  # says nothing of what it knows no better

    report = there.refresh()
    assert (report["counted"].strategy, report["counted"].reason) == ("full", "VIEW_CHANGED")
    assert [row.n for row in there.read("counted").collect()] == [1]
    check(there, "counted", "kept")
    assert not here.refresh("counted").records[0].error
    check(here, "counted", "kept")

    there.sql("DROP VIEW large")
    with pytest.raises(dt.RefreshFailed):
        here.refresh("counted")
    third = open_lake()
    assert not third.spark.catalog.tableExists("large")
    assert third.spark.catalog.tableExists("other")


def test_views_are_computed_as_the_definition_knows_them(open_lake: Open) -> None:
    """Workers that share a refresh compute one query, whatever their catalogs say meanwhile."""
    tables = open_lake()
    tables.sql("CREATE TABLE r (a INT) USING delta")
    tables.sql("CREATE VIEW v AS SELECT a FROM r")
    tables.create("t", "SELECT count(*) AS n FROM v")
    definition = tables.show("t").definition
    [view] = definition.views
    other = replace(definition, views=(replace(view, text="SELECT a FROM r WHERE a > 99"),))
    lake = tables.lake
    session = private_session(tables.spark, settings={}, namespace=definition.namespace)
    for known in (definition, other):
        [read] = lake.read_definition(session, known).views.values()  # ty: ignore
        assert read.text == known.views[0].text
    assert lake.followed(other, {}).views == definition.views


def test_a_definition_that_comes_late_changes_nothing(open_lake: Open) -> None:
    tables = open_lake()
    tables.sql("CREATE TABLE r (a INT) USING delta")
    tables.create("t", "SELECT a FROM r")
    late = tables.show("t").definition
    tables.alter("t", target_lag="1 hour")
    tables.lake.save_definition(replace(late, query="SELECT 1 AS a"))
    kept = tables.lake.standing(late).definition
    assert (kept.query, kept.options.target_lag) == (
        late.query,
        tables.show("t").definition.options.target_lag,
    )
    assert kept.options.target_lag is not None
