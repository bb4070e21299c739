"""Which aggregates have an inverse, and what must be stored beside them."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from dynamic_tables.compiler.folds import Fold, Kind, count_rows, fold_of


def fold(text: str, dialect: str = "spark") -> Fold | None:
    return fold_of(parse_one(text, dialect=dialect), dialect)


def sql(node: exp.Expr | None) -> str | None:
    return node.sql(dialect="spark") if node is not None else None


@pytest.mark.parametrize(
    ("text", "kind", "value", "condition", "argument"),
    [
        ("COUNT(*)", Kind.COUNT, None, None, None),
        ("COUNT(1)", Kind.COUNT, None, None, None),
        ("COUNT(v)", Kind.COUNT, "v", None, "v"),
        ("COUNT(*) FILTER(WHERE w)", Kind.COUNT, None, "w", None),
        ("SUM(v)", Kind.SUM, "v", None, "v"),
        ("SUM(v) FILTER(WHERE w)", Kind.SUM, "v", "w", "CASE WHEN w THEN v END"),
        ("AVG(v)", Kind.AVG, "v", None, "v"),
        ("MEAN(v)", Kind.AVG, "v", None, "v"),
        ("MIN(v)", Kind.MIN, "v", None, "v"),
        ("MAX(v)", Kind.MAX, "v", None, "v"),
        ("BOOL_AND(v)", Kind.MIN, "v", None, "v"),
        ("EVERY(v)", Kind.MIN, "v", None, "v"),
        ("BOOL_OR(v)", Kind.MAX, "v", None, "v"),
        ("SOME(v)", Kind.MAX, "v", None, "v"),
        ("COUNT_IF(v)", Kind.COUNT, None, "v", None),
        ("COUNT_IF(v) FILTER(WHERE w)", Kind.COUNT, None, "v AND w", None),
    ],
)
def test_what_has_an_inverse(
    text: str, kind: Kind, value: str | None, condition: str | None, argument: str | None
) -> None:
    found = fold(text)
    assert found is not None
    assert found.kind is kind
    assert (sql(found.value), sql(found.condition)) == (value, condition)
    assert sql(found.argument()) == argument


@pytest.mark.parametrize(
    "text",
    [
        "COUNT(DISTINCT v)",
        "COUNT(v, w)",
        "SUM(DISTINCT v)",
        "STDDEV(v)",
        "ANY_VALUE(v)",
        "FIRST(v) IGNORE NULLS",
        "EVERY(v, w)",
        "MEAN()",
    ],
)
def test_what_has_none(text: str) -> None:
    assert fold(text) is None


def test_count_if_of_duckdb_is_null_over_nulls_alone() -> None:
    assert fold("COUNT_IF(v)", "duckdb") is None
    assert fold("COUNT_IF(v) FILTER(WHERE w)", "duckdb") is None
    assert fold("SUM(v ORDER BY w)", "duckdb") is None


@pytest.mark.parametrize(
    ("text", "companions"),
    [
        ("COUNT(v)", []),
        ("MIN(v)", []),
        ("SUM(v)", ["COUNT(v)"]),
        ("SUM(v) FILTER(WHERE w)", ["COUNT(v) FILTER(WHERE w)"]),
        ("AVG(v)", ["SUM(v)", "COUNT(v)"]),
        ("AVG(v) FILTER(WHERE w)", ["SUM(v) FILTER(WHERE w)", "COUNT(v) FILTER(WHERE w)"]),
    ],
)
def test_what_is_stored_beside_it(text: str, companions: list[str]) -> None:
    found = fold(text)
    assert found is not None
    assert [sql(other) for other in found.companions()] == companions


def test_counts_are_large_numbers() -> None:
    """DuckDB's COUNT is a BIGINT, and sqlglot prints it as a cast unless it is told so."""
    assert sql(count_rows()) == "COUNT(*)"
    found = fold("SUM(v)")
    assert found is not None
    assert count_rows().args["big_int"] is True
    assert found.number().args["big_int"] is True
