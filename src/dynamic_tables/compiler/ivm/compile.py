"""`compile_ivm`: a view's text in, statements out."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_tables.compiler import functions, tree
from dynamic_tables.compiler.ivm import duckdb, spark
from dynamic_tables.compiler.ivm.arguments import (
    check_dialect,
    check_names,
    check_sources,
    check_view,
)
from dynamic_tables.compiler.ivm.plan import IVMPlan, Naming
from dynamic_tables.compiler.ivm.view import Given, Reader, Source, View
from dynamic_tables.compiler.plan import DeltaPlan, plan_query
from dynamic_tables.compiler.refused import NotIncremental
from dynamic_tables.compiler.tree import JoinKind, Node
from dynamic_tables.errors import UnsupportedSQLError
from dynamic_tables.reasons import Reason

DIALECTS = {"duckdb": duckdb.statements, "spark": spark.statements}
JOINS = {
    JoinKind.INNER: "join",
    JoinKind.LEFT: "outer_join",
    JoinKind.SEMI: "semi_join",
    JoinKind.ANTI: "anti_join",
}


def compile_ivm(
    view_sql: str,
    *,
    dialect: str = "duckdb",
    naming: Naming | None = None,
    mv_catalog: str = "dl",
    mv_schema: str = "main",
    sources: Given | None = None,
) -> IVMPlan:
    """Statements that keep a table equal to a view, for whoever has the lake and nothing of ours.

    `sources` says where a table is and what columns it has:
    `{"orders": {"catalog": "sales", "schema": "main", "columns": ["id", "amount"]}}`. Without it a
    table is where the view is, and its columns are those that the text names.

    >>> plan = compile_ivm("SELECT region, count(*) AS n FROM orders GROUP BY region")
    >>> plan.base_tables, sorted(plan.features)
    ({'orders': 'dl'}, ['aggregate'])
    """
    check_dialect(dialect, DIALECTS)
    check_view(view_sql)
    check_names(mv_catalog=mv_catalog, mv_schema=mv_schema)
    check_sources({} if sources is None else sources)
    naming, home = naming or Naming(), (mv_catalog, mv_schema)
    view = Reader(dialect=dialect, home=home, given=sources or {}).view(view_sql)
    own = tuple(part.lower() for part in (*home, naming.mv_table()))
    if own in [source.key for source in view.sources.values()]:
        raise UnsupportedSQLError(Reason.CYCLE, f"the view would read itself, {'.'.join(own)}")
    plan = plan_query(view.text, view.schemas, columns=view.columns, dialect=dialect)
    if isinstance(plan, NotIncremental):
        raise UnsupportedSQLError(plan.reason, f"{plan.what}: this cannot be kept up by changes")
    made = DIALECTS[dialect](view, plan, naming, home)
    return IVMPlan(
        view_sql=view_sql,
        create_cursors_table=made.create_cursors_table,
        create_mv=made.create_mv,
        initialize_cursors=made.initialize_cursors,
        maintain=made.maintain,
        base_tables=_base_tables(view),
        features=set(_features(plan)),
    )


def _base_tables(view: View) -> dict[str, str]:
    """Catalogs by table; two tables of one name are told apart by all their parts."""
    tables = [source.table.lower() for source in view.sources.values()]

    def name(source: Source) -> str:
        alone = tables.count(source.table.lower()) == 1
        return source.table if alone else ".".join(source.parts)

    return {name(source): source.catalog for source in view.sources.values()}


def _features(plan: DeltaPlan) -> Iterator[str]:
    """What the query is made of, by operator."""
    for node in tree.walk(plan.node):
        yield from _feature(node)


def _feature(node: Node) -> Iterator[str]:
    match node:
        case tree.Scan() | tree.Project():
            return
        case tree.Join():
            yield JOINS[node.kind]
        case tree.SetOperation():
            yield node.kind.value
        case tree.Filter():
            yield "filter"
            if functions.reads_clock(node.condition):
                yield "clock"
        case _:
            yield type(node).__name__.lower()
