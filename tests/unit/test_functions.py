"""What the compiler takes for an aggregate or a generator is what the engine does.

A name that is on no list would be taken for a function of one row, and wrong rows would come of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pytest
from sqlglot.errors import SqlglotError

import dynamic_tables as dt
from dynamic_tables.compiler import functions
from dynamic_tables.compiler.parsing import parse
from dynamic_tables.lake import jvm

WINDOW_ONLY = {"row_number", "rank_dense", "fill"}  # DuckDB lists some beside the aggregates
OTHER_SYNTAX = {"any"}  # any(x) is an operator to sqlglot; the compiler refuses it by name
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"


def called(name: str, dialect: str) -> Iterable[tuple[bool, bool]]:
    """Whether a function is an aggregate, and a generator, to the compiler."""
    for arguments in ("a", "a, b", "a, b, c", ""):
        try:
            tree = parse(f"SELECT {name}({arguments}) FROM r", dialect)
        except SqlglotError:
            continue
        node = tree.selects[0].unalias()
        yield functions.is_aggregate(node), functions.is_generator(node)


def unknown_aggregates(names: Iterable[str], dialect: str) -> set[str]:
    return {name for name in names if not any(folds for folds, _ in called(name, dialect))}


def unknown_generators(names: Iterable[str], dialect: str) -> set[str]:
    return {name for name in names if not any(makes for _, makes in called(name, dialect))}


def test_aggregates_of_duckdb() -> None:
    with duckdb.connect() as db:
        told = db.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions()"
            " WHERE function_type = 'aggregate'"
        ).fetchall()
    assert len(told) > 50
    assert unknown_aggregates({name for (name,) in told}, "duckdb") <= WINDOW_ONLY


def test_macros_of_duckdb() -> None:
    """Some are made of aggregates and generators, or of other macros."""
    with duckdb.connect() as db:
        told = db.execute(
            "SELECT function_name, macro_definition FROM duckdb_functions()"
            " WHERE function_type = 'macro'"
        ).fetchall()
    folding, making = set(), set()
    for name, text in told:
        for node in parse(f"SELECT {text}", "duckdb").walk():
            folding |= {name} if functions.is_aggregate(node) else set()
            making |= {name} if functions.is_generator(node) else set()
    assert {"weighted_avg", "geomean"} <= folding
    assert {"generate_subscripts"} <= making
    assert not unknown_aggregates(folding, "duckdb")
    assert not unknown_generators(making, "duckdb")


@pytest.mark.spark
def test_functions_of_spark(tmp_path_factory: pytest.TempPathFactory) -> None:
    """By their classes, and by the group that Spark documents them in."""
    folder = tmp_path_factory.mktemp("functions") / "lake"
    with dt.connect(folder, jvm="quick", say=lambda _: None) as tables:
        spark = tables.spark
        registry = spark._jsparkSession.sessionState().functionRegistry()
        by_class = {
            kind: jvm.packages(spark).java.lang.Class.forName(f"{EXPRESSIONS}.{kind}")
            for kind in ("aggregate.AggregateFunction", "RuntimeReplaceableAggregate", "Generator")
        }
        folding, making = set(), set()
        for identifier in jvm.items(registry.listFunction()):
            info = jvm.option(registry.lookupFunction(identifier))
            assert info is not None
            made_by = jvm.packages(spark).java.lang.Class.forName(info.getClassName())
            kinds = {kind for kind, known in by_class.items() if known.isAssignableFrom(made_by)}
            name = identifier.funcName()
            if info.getGroup() == "agg_funcs" or kinds - {"Generator"}:
                folding.add(name)
            if info.getGroup() == "generator_funcs" or "Generator" in kinds:
                making.add(name)
    assert len(folding) > 80
    assert unknown_aggregates(folding, "spark") <= WINDOW_ONLY | OTHER_SYNTAX
    assert not unknown_generators(making, "spark")
