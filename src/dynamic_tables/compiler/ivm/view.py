"""Reading a view's text: which tables, where they are, which of their columns.

The compiler knows no database, so columns come from the caller or from the text itself. What the
text does not tell is refused, never guessed: a wrong guess would be another query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.ivm.columns import infer_columns, is_table, named_sources
from dynamic_tables.compiler.parsing import parse, parse_all
from dynamic_tables.errors import UnsupportedSQLError
from dynamic_tables.names import COMPILER_PREFIX, RESERVED_PREFIX, SUBSTITUTED
from dynamic_tables.reasons import Reason

NO_COLUMN = f"{RESERVED_PREFIX}one"  # of a source that is only counted
DEFAULT_SCHEMA = {"duckdb": "main", "spark": "default"}
RESERVED = (RESERVED_PREFIX, COMPILER_PREFIX)
TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row"})
Given = Mapping[str, Mapping[str, Any]]  # `sources` as the caller wrote it


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table that the view reads."""

    name: str  # as the text calls it
    catalog: str
    schema: str
    table: str
    columns: tuple[str, ...] | None  # in lower case; None: whatever the text names

    @property
    def parts(self) -> tuple[str, str, str]:
        return (self.catalog, self.schema, self.table)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(part.lower() for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A query over tables called `_ivm_s0`, `_ivm_s1`, …"""

    text: str
    sources: Mapping[str, Source]  # by those names
    columns: tuple[str, ...]  # of the result

    @property
    def schemas(self) -> dict[str, tuple[str, ...]]:
        return {name: source.columns or (NO_COLUMN,) for name, source in self.sources.items()}


@dataclass(slots=True, kw_only=True)
class Reader:
    """Reads one text."""

    dialect: str
    home: tuple[str, str]  # catalog and schema of tables that nobody placed
    given: Given
    _found: dict[tuple[str, ...], Source] = field(default_factory=dict)

    def view(self, text: str) -> View:
        ast = self._parsed(text)
        spelled = ast.named_selects
        scopes = self._scopes(ast)
        tables = self._tables(ast, scopes)
        if not tables:
            raise UnsupportedSQLError(Reason.NOT_INCREMENTAL, "the view reads no table")
        named = {id(node): self._source(node) for node in tables}
        told = infer_columns(scopes, {place: source.columns for place, source in named.items()})
        sources = {}
        for source in dict.fromkeys(named.values()):
            opaque = f"{RESERVED_PREFIX}s{len(sources)}"
            places = [node for node in tables if named[id(node)] == source]
            if source.columns is None:
                columns = sorted(set().union(*(told[id(node)] for node in places)))
                sources[opaque] = replace(source, columns=tuple(columns))
            else:
                sources[opaque] = source
            for node in places:
                _rename(node, opaque)
        view = View(text=ast.sql(dialect=self.dialect), sources=sources, columns=())
        return replace(view, columns=self._output(view, spelled))

    # The text

    def _parsed(self, text: str) -> exp.Query:
        try:
            statements = parse_all(text, self.dialect)
        except SqlglotError as error:
            raise UnsupportedSQLError(Reason.SYNTAX, str(error).splitlines()[0]) from error
        if len(statements) != 1:
            code = Reason.SEVERAL_STATEMENTS if statements else Reason.NO_QUERY
            raise UnsupportedSQLError(code, "a view is one SELECT")
        [ast] = statements
        if not isinstance(ast, exp.Query):
            raise UnsupportedSQLError(Reason.NOT_A_QUERY, "a view is a SELECT")
        self._check(ast, text)
        if not (ast.args.get("limit") or ast.args.get("offset")):
            ast.set("order", None)  # a table has no order
        return ast

    def _check(self, ast: exp.Query, text: str) -> None:
        """Refuse what would not mean the same once it is printed."""
        printed = parse(ast.sql(dialect=self.dialect), self.dialect)
        if _comparable(printed) != _comparable(ast):
            raise UnsupportedSQLError(
                Reason.SQL_NOT_FAITHFUL, "sqlglot prints the query differently"
            )
        if self.dialect == "spark" and SUBSTITUTED.search(text):
            raise UnsupportedSQLError(
                Reason.SQL_NOT_FAITHFUL, "Spark puts the value of a setting where ${…} stands"
            )
        for cast in ast.find_all(exp.Cast):
            if self.dialect == "spark" and _names_a_time(cast):
                raise UnsupportedSQLError(
                    Reason.SQL_NOT_FAITHFUL, f"{cast.this.name!r} is a date or a time on its own"
                )
        for name in ast.find_all(exp.Identifier):
            if name.name.lower().startswith(RESERVED):
                raise UnsupportedSQLError(
                    Reason.RESERVED_NAME, f"{name.name}: names with _ivm_… and _dt_… are ours"
                )

    def _output(self, view: View, spelled: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns, as the user spelled them."""
        schema: dict[str, object] = {
            name: dict.fromkeys(columns, "unknown") for name, columns in view.schemas.items()
        }
        try:
            ast = qualify(
                parse(view.text, self.dialect),
                schema=schema,
                dialect=self.dialect,
            )
        except SqlglotError as error:
            message = (
                str(error).splitlines()[0].split(". Line: ")[0]
            )  # lines of our text, not theirs
            raise UnsupportedSQLError(Reason.ANALYSIS_FAILED, message) from error
        assert isinstance(ast, exp.Query)
        names = [name.lower() for name in ast.named_selects]
        for name in names:
            if names.count(name) > 1:
                raise UnsupportedSQLError(
                    Reason.BAD_COLUMNS, f"two columns are called {name}: name them with AS"
                )
        as_written = len(spelled) == len(names) and "*" not in spelled
        return tuple(
            old if as_written and old.lower() == new else new
            for old, new in zip(spelled if as_written else names, names, strict=True)
        )

    # Its tables

    def _scopes(self, ast: exp.Query) -> list[Scope]:
        try:
            return list(traverse_scope(ast))
        except SqlglotError as error:
            raise UnsupportedSQLError(Reason.ANALYSIS_FAILED, str(error)) from error

    def _tables(self, ast: exp.Query, scopes: Iterable[Scope]) -> list[exp.Table]:
        """Every place that names a source; common table expressions are none."""
        pairs = [pair for scope in scopes for pair in named_sources(scope).values()]
        known = {id(node) for node, _ in pairs}
        for node in ast.find_all(exp.Table):
            if not isinstance(node.this, exp.Identifier):
                _check_table_function(node)
            elif id(node) not in known:
                raise _misplaced(node, pairs)
        return [source for _, source in pairs if is_table(source)]

    def _source(self, node: exp.Table) -> Source:
        name = ".".join(part.name for part in node.parts)
        given = self._given(name, node.name)
        catalog, schema = self.home
        if given.get("catalog"):
            catalog, schema = given["catalog"], DEFAULT_SCHEMA[self.dialect]
        columns = given.get("columns")
        source = Source(
            name=name,
            catalog=node.catalog or catalog,
            schema=node.db or given.get("schema") or schema,
            table=node.name,
            columns=tuple(column.lower() for column in columns) if columns is not None else None,
        )
        return self._found.setdefault(source.key, source)

    def _given(self, *names: str) -> Mapping[str, Any]:
        lowered = {name.lower(): entry for name, entry in self.given.items()}
        return next((lowered[name.lower()] for name in names if name.lower() in lowered), {})


def _misplaced(node: exp.Table, pairs: Iterable[tuple[exp.Expr, object]]) -> UnsupportedSQLError:
    """A table that no SELECT knows: another one has its name, or the text is beyond us."""
    name = node.alias_or_name
    rivals = [place for place, _ in pairs if place.alias_or_name.lower() == name.lower()]
    if any(place.parent_select is node.parent_select for place in rivals):
        return UnsupportedSQLError(
            Reason.ANALYSIS_FAILED, f"two tables are called {name}: name them with AS"
        )
    return UnsupportedSQLError(Reason.SQL_NOT_FAITHFUL, f"the table {node.sql()} in this place")


def _rename(node: exp.Table, opaque: str) -> None:
    """The compiler's name for the table, the query's for its columns."""
    if not node.alias:
        node.set("alias", exp.TableAlias(this=node.this.copy()))
    node.set("this", exp.to_identifier(opaque))
    for part in ("db", "catalog"):
        node.set(part, None)


def _comparable(ast: exp.Expr) -> exp.Expr:
    """On Spark sqlglot reads CAST as another node than DATE '…', and prints both as CAST."""

    def same(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.TryCast) and not node.args.get("safe"):
            return exp.Cast(this=node.this, to=node.to)
        return node

    return ast.transform(same)


def _names_a_time(cast: exp.Cast) -> bool:
    """DATE 'today' depends on the day; sqlglot prints it as a CAST, which Spark does not know."""
    timed = cast.to.this in exp.DataType.TEMPORAL_TYPES
    text = cast.this.name.strip() if cast.this.is_string else "0"
    return timed and not text.lstrip("+-")[:1].isdigit()


def _check_table_function(node: exp.Table) -> None:
    name = functions.function_name(node.this)
    if name not in TABLE_FUNCTIONS:
        raise UnsupportedSQLError(
            Reason.SOURCE_NOT_DELTA, f"{name or node.sql()} has no versions and no changes"
        )
