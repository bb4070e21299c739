"""Which columns are hidden so that a query can be merged, and which queries cannot be."""

from __future__ import annotations

import pytest

from dynamic_tables.compiler.auxiliary import extended
from dynamic_tables.compiler.merge import Merging, _rounds_once
from dynamic_tables.compiler.plan import DeltaPlan, plan_query
from dynamic_tables.reasons import Reason

SCHEMAS = {"t": ("k", "j", "v", "w", "flag")}


@pytest.mark.parametrize(
    ("query", "hidden"),
    [
        ("SELECT k, sum(v) AS s FROM t GROUP BY k", "count_1 count_2"),
        ("SELECT k, sum(v) AS s, count(v) AS c FROM t GROUP BY k", "count_1"),
        ("SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k", "count_1"),
        ("SELECT sum(v) AS s FROM t", "count_1"),
        ("SELECT k, avg(v) AS a FROM t GROUP BY k", "count_1 sum_2 count_3"),
        ("SELECT k, min(v) AS m FROM t GROUP BY k", "count_1"),
        ("SELECT count(*) AS n FROM t GROUP BY k, j", "key_1 key_2"),
        ("SELECT k + 1 AS l, sum(v) AS s FROM t GROUP BY l", "count_1 count_2"),
        ("SELECT k, max(v) - min(v) AS d FROM t GROUP BY 1", "count_1 max_2 min_3"),
        ("SELECT k, sum(v) FILTER (WHERE flag) AS s FROM t GROUP BY ALL", "count_1 count_2"),
        ("SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 1", "shown"),
        ("SELECT k, count(*) AS n FROM t GROUP BY k HAVING sum(v) > 1", "count_1 sum_2 shown"),
    ],
)
@pytest.mark.parametrize("dialect", ["spark", "duckdb"])
def test_extended_queries_can_be_merged(query: str, hidden: str, dialect: str) -> None:
    found = extended(query, dialect)
    assert found is not None
    names = [f"_ivm_{name}" for name in hidden.split()]
    assert list(found.hidden) == names
    declared = query.partition(" FROM ")[0].count(" AS ") + query.startswith("SELECT k,")
    columns = [f"c{n}" for n in range(declared)] + names
    plan = plan_query(found.query, SCHEMAS, columns=columns, dialect=dialect)
    assert isinstance(plan, DeltaPlan)
    assert isinstance(plan.merging, Merging)


@pytest.mark.parametrize(
    ("aggregate", "type_", "needed"),
    [
        ("sum(v)", "bigint", False),
        ("sum(v)", "decimal(10,2)", False),
        ("sum(v)", "double", True),
        ("sum(v)", "float", True),
        ("min(v)", "bigint", True),
        ("max(v)", "string", True),
        ("count(v)", "bigint", False),
        ("bool_or(flag)", "boolean", True),  # the greatest of false and true
    ],
)
def test_which_groups_may_need_their_rows(aggregate: str, type_: str, needed: bool) -> None:
    """When a row goes: the greatest value may have gone, and floating sums cannot be taken back."""
    query = f"SELECT k, {aggregate} AS x, count(v) AS c, count(*) AS n FROM t GROUP BY k"
    found = extended(query, "spark")
    hidden = found.hidden if found is not None else ()
    text = found.query if found is not None else query
    plan = plan_query(text, SCHEMAS, columns=("k", "x", "c", "n", *hidden), dialect="spark")
    assert isinstance(plan, DeltaPlan)
    assert isinstance(plan.merging, Merging)
    types = {"k": "bigint", "x": type_, "c": "bigint", "n": "bigint"}
    assert plan.merging.may_need_rows(types | dict.fromkeys(hidden, "bigint")) is needed


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, v FROM t",  # no groups
        "SELECT DISTINCT k, count(*) AS n FROM t GROUP BY k, j",
        "SELECT k, count(DISTINCT v) AS n FROM t GROUP BY k",
        "SELECT k, stddev(v) AS d FROM t GROUP BY k",
        "SELECT k, sum(v ORDER BY w) AS s FROM t GROUP BY k",
        "SELECT k, sum(v) AS s FROM t GROUP BY ROLLUP (k)",
        "SELECT k, sum(v) AS s FROM t GROUP BY GROUPING SETS ((k), ())",
        "SELECT k, sum(v) AS s FROM t GROUP BY k HAVING s > 1",  # the alias, or a column?
        "SELECT k, sum(v) AS s FROM t GROUP BY ALL HAVING k > 1",  # would become a key
        "SELECT k, sum(v) AS s FROM t GROUP BY k HAVING sum(v) > (SELECT max(w) FROM t)",
        "SELECT k, sum(sum(v)) OVER (PARTITION BY k) AS s FROM t GROUP BY k",
        "SELECT k, sum(v) AS s FROM t GROUP BY k LIMIT 3",
        "SELECT k, sum(v) AS s FROM t GROUP BY k UNION ALL SELECT k, v FROM t",
        "SELECT k, count(*) AS n FROM t GROUP BY k",  # has all it needs
        "SELECT (",
    ],
)
@pytest.mark.parametrize("dialect", ["spark", "duckdb"])
def test_queries_that_are_not_extended(query: str, dialect: str) -> None:
    assert extended(query, dialect) is None


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT k, v FROM t", Reason.NO_INVERSE),
        ("SELECT k, count(DISTINCT v) AS n FROM t GROUP BY k", Reason.NO_INVERSE),
        ("SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 1", Reason.NO_INVERSE),
        ("SELECT k, sum(v) AS s FROM t GROUP BY k", Reason.NO_STATE),
        ("SELECT count(*) AS n, max(v) AS m FROM t GROUP BY k", Reason.NO_STATE),
        ("SELECT k, count(*) AS n, max(v) + 1 AS m FROM t GROUP BY k", Reason.NO_STATE),
    ],
)
def test_why_a_query_cannot_be_merged_as_it_is(query: str, reason: Reason) -> None:
    columns = ["a", "b", "c"][: query.partition(" FROM ")[0].count(",") + 1]
    plan = plan_query(query, SCHEMAS, columns=columns, dialect="spark")
    assert isinstance(plan, DeltaPlan)
    assert plan.merging is reason


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("DOUBLE", None),
        ("DECIMAL(16,6)", None),
        ("DECIMAL(38,14)", Reason.NO_INVERSE),
        ("INTERVAL DAY", Reason.NO_INVERSE),
    ],
)
def test_an_average_must_be_rounded_once(kind: str, reason: Reason | None) -> None:
    query = "SELECT count(v) AS c, sum(v) AS s, avg(v) AS a FROM t"
    plan = plan_query(query, SCHEMAS, columns=("c", "s", "a"), dialect="spark")
    assert isinstance(plan, DeltaPlan)
    assert isinstance(plan.merging, Merging)
    assert plan.merging.reason_against({"c": "BIGINT", "s": "DOUBLE", "a": kind}) is reason


@pytest.mark.parametrize(
    ("average", "once"),
    [
        ("decimal(19,6)", True),  # of decimal(15, 2), whose sums are decimal(25, 2)
        ("decimal(20,6)", False),
        ("decimal(19,15)", True),
        ("decimal(20, 15)", False),
        ("double", False),
    ],
)
def test_quotients_that_are_rounded_once(average: str, once: bool) -> None:
    assert _rounds_once(average) is once
