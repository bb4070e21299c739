"""The statements on DuckDB with DuckLake.

A refresh is one transaction. It notes from which snapshot to which it goes in session variables
(`AT (VERSION => …)` and `ducklake_table_changes` take no subqueries, but they take `getvariable`),
copies each source's changes into a temporary table once, computes the difference there, and only
then writes: within a transaction that has written, DuckLake shows its own writes at every version.
DuckLake knows no primary keys; that a view has one cursor a catalog is kept by `initialize_cursors`
and checked by every refresh, because a scalar subquery of two rows is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from dynamic_tables.compiler import duck_bags as bags
from dynamic_tables.compiler import functions
from dynamic_tables.compiler.duck_sql import (
    INEXACT,
    SIGN,
    SNAPSHOT,
    WIDE,
    WIDE_TYPES,
    columns_sql,
    feed,
    literal,
    quote,
)
from dynamic_tables.compiler.emit import WEIGHT, Side, Within, key_column
from dynamic_tables.compiler.ivm.plan import Naming
from dynamic_tables.compiler.ivm.statements import Statements, Writer
from dynamic_tables.compiler.ivm.view import NO_COLUMN, Source, View
from dynamic_tables.compiler.plan import DeltaPlan, Situation
from dynamic_tables.compiler.rounding import rounded_columns

AGAIN = "run initialize_cursors again"
CLOCKS = {  # what a clock function is at an instant, in its own type
    "current_date": "CAST({} AS DATE)",
    "today": "CAST({} AS DATE)",
    "localtimestamp": "CAST({} AS TIMESTAMP)",
    "current_localtimestamp": "CAST({} AS TIMESTAMP)",
    "current_time": "CAST({} AS TIMETZ)",
    "get_current_time": "CAST({} AS TIMETZ)",
    "localtime": "CAST(CAST({} AS TIMESTAMP) AS TIME)",
    "current_localtime": "CAST(CAST({} AS TIMESTAMP) AS TIME)",
}
# One row of DESCRIBE as an item of a SELECT list.
STORED_COLUMN = f"""'CAST(NULL AS ' || CASE
        WHEN column_type IN ({", ".join(map(literal, WIDE_TYPES))}) THEN {literal(WIDE)}
        WHEN regexp_matches(column_type, {literal(INEXACT)}) THEN
            error(column_name || ': DuckLake does not store ' || column_type || ' exactly, CAST it')
        ELSE column_type END || ') AS "' || replace(column_name, '"', '""') || '"'"""


def statements(view: View, plan: DeltaPlan, naming: Naming, home: tuple[str, str]) -> Statements:
    """All statements of one view."""
    return _DuckWriter(
        view=view, plan=plan, naming=naming, home=home, quote=quote, literal=literal
    ).statements()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaves:
    """See `compiler.emit.Leaves`: versions are session variables."""

    view: View
    naming: Naming

    def rows(self, source: str, side: Side, within: tuple[Within, ...] = ()) -> str:  # noqa: ARG002
        table = self.view.sources[source]
        name = ".".join(map(quote, table.parts))
        pinned = f"{name} AT (VERSION => {self.version(table, side)})"
        return pinned if table.columns else f"(SELECT 1 AS {NO_COLUMN} FROM {pinned})"

    def changes(self, source: str) -> str:
        return f"temp.{quote(self.feed_table(source))}"

    def near(self, source: str, side: Side, within: Within, column: str) -> str:  # noqa: ARG002
        """The keys are not known when the statements are written."""
        return ""

    def clock(self, function: exp.Expr, side: Side) -> exp.Expr:
        form = CLOCKS.get(functions.function_name(function), "{}")
        instant = f"make_timestamptz(epoch_us({self.variable(side, 'time')}))"
        return sqlglot.parse_one(form.format(instant), dialect="duckdb")

    def feed_table(self, source: str) -> str:
        return self.naming.aux_column(f"feed_{source.rpartition('_')[2]}")

    def version(self, source: Source, side: Side) -> str:
        place = self.catalogs().index(source.catalog)
        return self.variable(side, str(place))

    def variable(self, side: Side, what: str) -> str:
        return f"getvariable({literal(self.variable_name(side, what))})"

    def variable_name(self, side: Side, what: str) -> str:
        return self.naming.aux_column(f"{side.value}_{what}")

    def catalogs(self) -> list[str]:
        return list(dict.fromkeys(source.catalog for source in self.view.sources.values()))


class _DuckWriter(Writer):
    """Writes the statements of one view."""

    @property
    def leaves(self) -> _Leaves:
        return _Leaves(view=self.view, naming=self.naming)

    def temp(self, purpose: str) -> str:
        return f"temp.{quote(self.naming.aux_column(purpose))}"

    def kept(self, purpose: str, query: str) -> str:
        """A temporary table; the transaction takes it back if it fails."""
        name = quote(self.naming.aux_column(purpose))
        return f"CREATE OR REPLACE TEMP TABLE {name} AS\n{query}"

    # Making

    def create_cursors_table(self) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.cursors} (\n"
            "    mv_name VARCHAR NOT NULL,\n"
            "    source_catalog VARCHAR NOT NULL,\n"
            "    last_snapshot BIGINT NOT NULL,\n"
            "    last_time TIMESTAMP NOT NULL  -- UTC\n)"
        )

    def create_mv(self) -> str:
        """An empty table of the view's columns, in types that DuckLake stores exactly.

        The types are DuckDB's to say; `query` is what runs a text that was put together.
        """
        text = self.naming.aux_column("columns")
        leaves = _Unpinned(view=self.view, naming=self.naming)
        query = self.plan.result(Situation(leaves=leaves, moved=frozenset()))
        return (
            f"SET VARIABLE {quote(text)} = (\n"
            f"    SELECT 'SELECT ' || string_agg({STORED_COLUMN}, ', ')\n"
            f"    FROM (DESCRIBE {query})\n);\n"
            f"CREATE TABLE {self.mv} AS FROM query(getvariable({literal(text)})) LIMIT 0"
        )

    def initialize(self) -> Iterator[str]:
        """Rows and cursors in one transaction, so that no change falls between them."""
        leaves = self.leaves
        yield "BEGIN TRANSACTION"
        for place, catalog in enumerate(leaves.catalogs()):
            yield self.set_newest(place, catalog)
        yield self.set_now()
        yield f"DELETE FROM {self.mv}"
        yield f"INSERT INTO {self.mv}\n{self.plan.result(self.situation)}"
        yield f"DELETE FROM {self.cursors} WHERE {self.mine}"
        rows = ",\n    ".join(
            f"({literal(self.naming.mv_table())}, {literal(catalog)}, "
            f"{leaves.variable(Side.AFTER, str(place))}, {leaves.variable(Side.AFTER, 'time')})"
            for place, catalog in enumerate(leaves.catalogs())
        )
        columns = "mv_name, source_catalog, last_snapshot, last_time"
        yield f"INSERT INTO {self.cursors} ({columns}) VALUES\n    {rows}"
        yield "COMMIT"

    # Keeping up

    def maintain(self) -> Iterator[str]:
        yield "BEGIN TRANSACTION"
        yield from self.pin()
        yield from self.feeds()
        temporary = ["changes", *map(self.purpose, self.view.sources)]
        rounded = rounded_columns(self.plan)
        if self.plan.key is not None or rounded:
            yield from self.by_keys(rounded)
            temporary += ["keys", "rows"]
        else:
            yield from self.by_rows()
            temporary += ["rows"]
        yield from self.write()
        for purpose in temporary:
            yield f"DROP TABLE {self.temp(purpose)}"
        yield "COMMIT"

    def purpose(self, source: str) -> str:
        return f"feed_{source.rpartition('_')[2]}"

    def pin(self) -> Iterator[str]:
        """From which snapshot of each catalog to which."""
        leaves = self.leaves
        for place, catalog in enumerate(leaves.catalogs()):
            cursor = f"{self.mine} AND source_catalog = {literal(catalog)}"
            missing = f"{self.naming.mv_table()} has no cursor for {catalog}: {AGAIN}"
            before = quote(leaves.variable_name(Side.BEFORE, str(place)))
            yield (
                f"SET VARIABLE {before} = coalesce(\n"
                f"    (SELECT last_snapshot FROM {self.cursors} WHERE {cursor}),\n"
                f"    error({literal(missing)})\n)"
            )
            yield self.set_newest(place, catalog)
        if self.timed:
            then = quote(leaves.variable_name(Side.BEFORE, "time"))
            yield (
                f"SET VARIABLE {then} = "
                f"(SELECT min(last_time) FROM {self.cursors} WHERE {self.mine})"
            )
        yield self.set_now()
        for source in self.view.sources.values():
            yield self.check_same_table(source)

    def set_newest(self, place: int, catalog: str) -> str:
        name = quote(self.leaves.variable_name(Side.AFTER, str(place)))
        newest = f"SELECT id::BIGINT FROM {quote(catalog)}.current_snapshot()"
        return f"SET VARIABLE {name} = ({newest})"

    def set_now(self) -> str:
        name = quote(self.leaves.variable_name(Side.AFTER, "time"))
        return f"SET VARIABLE {name} = make_timestamp(epoch_us(now()))"

    def check_same_table(self, source: Source) -> str:
        """The changes of a table that was made again do not lead from the old rows to the new."""
        before, after = (self.leaves.version(source, side) for side in Side)
        # DuckLake writes schema.table there, each part in quotes only if it needs them.
        parts = [(part.lower(), quote(part.lower())) for part in (source.schema, source.table)]
        names = ", ".join(literal(f"{s}.{t}") for s in parts[0] for t in parts[1])
        message = f"{source.name} was dropped and made again: {AGAIN}"
        return (
            f"SELECT error({literal(message)}) FROM ducklake_snapshots({literal(source.catalog)})\n"
            f"WHERE snapshot_id > {before} AND snapshot_id <= {after} AND list_has_any(\n"
            f"    list_transform(changes['tables_created'], lambda x: lower(x)), [{names}])"
        )

    def feeds(self) -> Iterator[str]:
        """Each source's changes, read once: the columns that the view needs."""
        for name, source in self.view.sources.items():
            before, after = (self.leaves.version(source, side) for side in Side)
            read = [c for c in source.columns or () if c in self.plan.reads(name)]
            columns = columns_sql(read) or f"1 AS {NO_COLUMN}"
            # A range that starts after the newest snapshot is an error, an empty one is not.
            changes = feed(source.parts, f"least({before} + 1, {after})", after)
            yield self.kept(
                self.purpose(name),
                f"SELECT {columns}, {SIGN} AS {WEIGHT} FROM {changes}\nWHERE {SNAPSHOT} > {before}",
            )

    def by_keys(self, rounded: tuple[str, ...]) -> Iterator[str]:
        """The rows of the affected keys as they are now against the stored ones."""
        keys = self.temp("keys")
        affected = self.plan.affected(self.situation, rounded)
        assert affected is not None, "every source is taken to have changed"
        yield self.kept("keys", affected)
        yield self.kept("rows", f"FROM {self.mv} LIMIT 0")  # the types of the stored rows
        yield f"INSERT INTO {self.temp('rows')}\n{self.plan.rows_of(self.situation, keys, rounded)}"
        same = " AND ".join(
            f"k.{key_column(n)} IS NOT DISTINCT FROM v.{quote(name)}"
            for n, name in enumerate(self.plan.exact_key_columns(rounded))
        )
        where = f" WHERE {same}" if same else ""
        stored = f"(SELECT * FROM {self.mv} AS v WHERE EXISTS (SELECT 1 FROM {keys} AS k{where}))"
        yield self.kept("changes", bags.difference(self.temp("rows"), stored, self.plan.columns))

    def by_rows(self) -> Iterator[str]:
        """The signed rows by which the result changed."""
        changes = self.plan.changes(self.situation)
        assert changes is not None, "every source is taken to have changed"
        yield self.kept("rows", f"SELECT *, 0::BIGINT AS {WEIGHT} FROM {self.mv} LIMIT 0")
        yield f"INSERT INTO {self.temp('rows')}\n{changes}"
        columns = columns_sql(self.plan.columns)
        yield self.kept("changes", bags.netted(f"FROM {self.temp('rows')}", columns))
        lacking = bags.lacking(self.temp("changes"), self.mv, self.plan.columns)
        message = f"{self.naming.mv_table()} lacks rows that are to go: {AGAIN}"
        yield f"SELECT error({literal(message)}) FROM ({lacking})"

    def write(self) -> Iterator[str]:
        """Exactly as many copies deleted and inserted; the cursors move in the same commit."""
        changes = self.temp("changes")
        surplus = bags.surplus(self.mv, changes, self.plan.columns)
        yield f"DELETE FROM {self.mv} WHERE rowid IN (\n{surplus}\n)"
        missing = bags.missing(changes, self.plan.columns)
        yield f"INSERT INTO {self.mv} ({columns_sql(self.plan.columns)})\n{missing}"
        leaves = self.leaves
        versions = " ".join(
            f"WHEN {literal(catalog)} THEN {leaves.variable(Side.AFTER, str(place))}"
            for place, catalog in enumerate(leaves.catalogs())
        )
        read = [changes] if self.timed else []
        read += [leaves.changes(name) for name in self.view.sources]
        moved = " OR ".join(f"EXISTS (FROM {table})" for table in read)
        yield (
            f"UPDATE {self.cursors} SET\n"
            f"    last_snapshot = CASE source_catalog {versions} END,\n"
            f"    last_time = {leaves.variable(Side.AFTER, 'time')}\n"
            f"WHERE {self.mine} AND ({moved})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unpinned(_Leaves):
    """The tables as they are, for their types."""

    def rows(self, source: str, side: Side, within: tuple[Within, ...] = ()) -> str:  # noqa: ARG002
        table = self.view.sources[source]
        name = ".".join(map(quote, table.parts))
        return name if table.columns else f"(SELECT 1 AS {NO_COLUMN} FROM {name})"

    def clock(self, function: exp.Expr, side: Side) -> exp.Expr:  # noqa: ARG002
        return function
