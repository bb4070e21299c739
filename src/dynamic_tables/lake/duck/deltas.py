"""Changes instead of rows: the leaves of a delta plan on DuckLake, and what the plan's SQL gives.

Feeds and keys are kept in temporary tables, so every change is read once. All of it happens before
the transaction that commits: inside one that has written, DuckLake shows its own writes even in
older versions.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from typing import Any

import sqlglot
from sqlglot import exp

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.emit import WEIGHT, Side, Within, key_column
from dynamic_tables.compiler.plan import DeltaPlan, Situation
from dynamic_tables.compiler.references import TableReference, as_query, rewrite
from dynamic_tables.compiler.refused import unfaithful
from dynamic_tables.compiler.spelling import prints
from dynamic_tables.definition import Definition, Hidden
from dynamic_tables.lake.base import Moves
from dynamic_tables.lake.duck import parts
from dynamic_tables.lake.duck.catalog import Catalog
from dynamic_tables.lake.duck.connection import Connection
from dynamic_tables.lake.duck.pinning import Reading, aliased_as
from dynamic_tables.lake.duck.references import CLOCKS
from dynamic_tables.lake.duck.text import columns_sql, literal, name_sql, quote, shown_sql
from dynamic_tables.lake.pins import pin_of
from dynamic_tables.lake.plans import moved_names, read_columns, source_names
from dynamic_tables.model import Pin
from dynamic_tables.names import RESERVED_PREFIX, SHOWN

DIALECT = "duckdb"
KEYS = f"{RESERVED_PREFIX}keys"
ORDERS = {"ASC": "ASCENDING", "DES": "DESCENDING"}  # the setting has several spellings
SMALL_TABLE = 10_000  # rows; so many are copied faster than read from the lake a second time


class OpaqueQuery:
    """The user's text with the compiler's names instead of tables; views are part of it."""

    def __init__(
        self,
        catalog: Catalog,
        reading: Reading,
        *,
        names: Mapping[str, str],
        declared: Container[str],
    ) -> None:
        self._catalog = catalog
        self._reading = reading
        self._names = names  # the compiler's, by name key
        self._declared = declared

    def text(self, query: str, namespace: tuple[str, str]) -> str:
        tables = self._reading.found[query].tables
        return rewrite(query, tables, lambda reference: self._table(reference, namespace))

    def _table(self, reference: TableReference, namespace: tuple[str, str]) -> str:
        name = self._catalog.resolve(reference, namespace, self._declared)
        view = self._reading.views.get(name.key)
        if view is None:
            return aliased_as(self._names[name.key], reference)
        text = f"({self.text(view.text, view.namespace)}\n)"
        columns = f" ({columns_sql(view.columns)})" if view.columns else ""
        named = f"{text} AS {quote(reference.parts[-1])}{columns}"
        relation = f"(SELECT * FROM {named})"  # noqa: S608  quoted above
        return relation if reference.aliased else as_query(named, reference)


def check_faithful(cursor: Connection, text: str, definition: Definition) -> None:
    """DuckDB parses the text and what sqlglot prints of it alike; raises NotIncremental if not.

    Its plans do not tell: EXPLAIN prints an item by its alias only.
    """
    make_empty_sources(cursor, definition)
    cursor.execute(f"EXPLAIN {text}")  # raises what DuckDB cannot analyse
    defaults = {
        "null_order": definition.settings.get("default_null_order", "").upper().replace("_", " "),
        "type": ORDERS.get(definition.settings.get("default_order", "").upper()[:3], ""),
    }
    wanted = _parsed(cursor, text, defaults)
    found = (_parsed(cursor, printed, defaults) for printed in prints(text, DIALECT))
    if wanted not in found:
        raise unfaithful("sqlglot prints the query differently")


def _parsed(cursor: Connection, query: str, defaults: Mapping[str, str]) -> Any:
    """DuckDB's tree of a query, without the places and the case of its words."""
    found = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
    return _plain(json.loads(found[0][0]), defaults)


def _plain(tree: Any, defaults: Mapping[str, str], key: str = "") -> Any:
    if isinstance(tree, dict):
        named = tree.items()
        return {k: _plain(value, defaults, k) for k, value in named if k != "query_location"}
    if isinstance(tree, list):
        return [_plain(item, defaults, key) for item in tree]
    if key == "column_names":
        return tree.casefold()
    return defaults.get(key, tree) if tree == "ORDER_DEFAULT" else tree


def make_empty_sources(cursor: Connection, definition: Definition) -> None:
    """Tables that have the sources' types and no rows, to analyse queries over them."""
    for name, source in source_names(definition).items():
        columns = ", ".join(f"NULL::{c.type} AS {quote(c.name)}" for c in source.columns)
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {columns} LIMIT 0")


class DuckLeaves:
    """See `compiler.emit.Leaves`."""

    def __init__(
        self,
        cursor: Connection,
        catalog: Catalog,
        definition: Definition,
        plan: DeltaPlan,
        moves: Moves,
    ) -> None:
        self._cursor = cursor
        self._catalog = catalog
        self._sources = source_names(definition)
        self._columns = {name: read_columns(definition, plan, name) for name in self._sources}
        self._moves = moves
        self._feeds: dict[str, str] = {}
        self._asked: set[tuple[str, Side]] = set()
        self._copies: dict[tuple[str, Side], str] = {}

    def pin(self, source: str, side: Side) -> Pin:
        pins = self._moves.before if side is Side.BEFORE else self._moves.after
        return pin_of(pins, self._sources[source])

    def rows(self, source: str, side: Side, within: tuple[Within, ...] = ()) -> str:  # noqa: ARG002
        """Small tables that a plan reads more than once are copied: each scan of the lake costs."""
        pin, lake = self.pin(source, side), self._stored(source, side)
        known = self._sources[source]
        if known.hidden:
            lake = f"({shown_sql(lake, known.columns, known.hidden)})"
        if (source, side) not in self._asked:
            self._asked.add((source, side))
            return lake
        if (source, side) not in self._copies:
            small = self._catalog.rows_ever(pin.source_id) <= SMALL_TABLE
            self._copies[source, side] = self._copied(source, side, lake) if small else lake
        return self._copies[source, side]

    def _copied(self, source: str, side: Side, lake: str) -> str:
        copy = f"{RESERVED_PREFIX}{side.value}_{source.removeprefix(RESERVED_PREFIX)}"
        columns = columns_sql(self._columns[source]) or "1"
        self._cursor.execute(f"CREATE OR REPLACE TEMP TABLE {copy} AS SELECT {columns} FROM {lake}")  # noqa: S608
        return f"temp.{copy}"

    def changes(self, source: str) -> str:
        if source not in self._feeds:
            self._feeds[source] = self._kept(source)
        return self._feeds[source]

    def _kept(self, source: str) -> str:
        """Read the feed once; an update is a deletion and an insertion, and which of them belong
        together does not matter (`ducklake_table_changes` takes twice as long to find out)."""
        before, after = self.pin(source, Side.BEFORE), self.pin(source, Side.AFTER)
        name = self._catalog.name_at(after.source_id, after.version)
        table = ", ".join(literal(part) for part in name.parts)
        arguments = f"{table}, {before.version + 1:d}, {after.version:d}"
        columns = "".join(f"{quote(column)}, " for column in self._columns[source])
        feed = f"{RESERVED_PREFIX}feed_{source.removeprefix(RESERVED_PREFIX)}"
        hidden = self._sources[source].hidden
        if hidden is not None and hidden.in_parts is not None:
            return self._changed_groups(source, feed, arguments, hidden)
        where = f" WHERE {quote(SHOWN)}" if hidden is not None and hidden.filtered else ""
        self._cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE {feed} AS "  # noqa: S608  quoted
            f"SELECT {columns}1 AS {WEIGHT} FROM ducklake_table_insertions({arguments}){where} "
            f"UNION ALL SELECT {columns}-1 FROM ducklake_table_deletions({arguments}){where}"
        )
        return f"temp.{feed}"

    def _changed_groups(self, source: str, feed: str, arguments: str, hidden: Hidden) -> str:
        """What is stored of a group may change without the group; readers see groups only."""
        assert hidden.in_parts is not None
        keys = columns_sql(hidden.in_parts.keys) or "1 AS one"
        touched = " UNION ALL ".join(
            f"SELECT {keys} FROM ducklake_table_{kind}({arguments})"  # noqa: S608  quoted
            for kind in ("insertions", "deletions")
        )
        before, after = (self._stored(source, side) for side in Side)
        groups = parts.groups_of(f"({touched})", hidden.in_parts.keys)
        shown = [*self._columns[source], *([SHOWN] if hidden.filtered else [])]
        signed = parts.changes(groups, before, after, hidden.in_parts, columns_sql(shown))
        where = f" WHERE {quote(SHOWN)}" if hidden.filtered else ""
        columns = "".join(f"{quote(column)}, " for column in self._columns[source])
        self._cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE {feed} AS "  # noqa: S608  quoted
            f"SELECT {columns}{WEIGHT} FROM ({signed}){where}"
        )
        return f"temp.{feed}"

    def _stored(self, source: str, side: Side) -> str:
        pin = self.pin(source, side)
        name = self._catalog.name_at(pin.source_id, pin.version)
        return f"{name_sql(name)} AT (VERSION => {pin.version:d})"

    def near(self, source: str, side: Side, within: Within, column: str) -> str:  # noqa: ARG002
        """DuckDB finds the keys by joining."""
        return ""

    def clock(self, function: exp.Expr, side: Side) -> exp.Expr:
        instant = self._moves.then if side is Side.BEFORE else self._moves.now
        micros = round(instant.timestamp() * 1_000_000)
        form = CLOCKS[functions.function_name(function)]
        return sqlglot.parse_one(
            form.format(instant=f"make_timestamptz({micros}::BIGINT)"), dialect=DIALECT
        )


def situation(
    cursor: Connection,
    catalog: Catalog,
    definition: Definition,
    plan: DeltaPlan,
    moves: Moves,
) -> Situation:
    """The leaves of one refresh."""
    return Situation(
        leaves=DuckLeaves(cursor, catalog, definition, plan, moves),
        moved=moved_names(definition, moves),
        clock_moved=moves.clock_moved,
    )


def same_keys(columns: tuple[str, ...], table: str, keys: str) -> str:
    """The condition that a stored row belongs to an affected key."""
    same = [
        f"{keys}.{key_column(n)} IS NOT DISTINCT FROM {table}.{quote(name)}"
        for n, name in enumerate(columns)
    ]
    return " AND ".join(same) or "TRUE"
