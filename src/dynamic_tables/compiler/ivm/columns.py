"""Which columns of which table a text names, where nobody says what columns the tables have.

A qualified column tells its table, an unqualified one does where only one table can have it. A
column that is taken for one of a table that lacks it makes `create_mv` fail, so nothing wrong comes
of it; where two readings could both run, the text does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TypeGuard

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from dynamic_tables.errors import UnsupportedSQLError
from dynamic_tables.reasons import Reason

Known = Mapping[int, tuple[str, ...] | None]  # the columns of a place in FROM, if they are known


def is_table(source: object) -> TypeGuard[exp.Table]:
    """Whether a source of a scope is a table of the lake."""
    return isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)


def named_sources(scope: Scope) -> dict[str, tuple[exp.Expr, object]]:
    """What a SELECT reads, by the names it has there: the place in the text, and what is meant.

    Those of SEMI and ANTI joins too, which sqlglot's `selected_sources` leaves out.
    """
    return {
        name: (node, scope.sources[name])
        for name, node in scope.references
        if name in scope.sources
    }


def infer_columns(scopes: Iterable[Scope], known: Known) -> dict[int, set[str]]:
    """The columns that the text names, for every place in FROM."""
    told: dict[int, set[str]] = {place: set() for place in known}
    doubtful = []
    for scope in scopes:
        if scope.is_udtf:
            continue  # its columns are found in the scope around it
        inference = _Inference(scope, known, told)
        inference.check_stars()
        for column in scope.find_all(exp.Column):
            if isinstance(column.this, exp.Star):
                continue
            if inference.may_be_alias(column):
                doubtful.append((inference, column))
            else:
                inference.take(column)
    for inference, column in doubtful:
        inference.check_alias(column)
    return told


class _Inference:
    """The columns of one SELECT."""

    def __init__(self, scope: Scope, known: Known, told: dict[int, set[str]]) -> None:
        self._scope = scope
        self._known = known
        self._told = told
        self._sources = {name.lower(): s for name, (_, s) in named_sources(scope).items()}
        self._select = scope.expression if isinstance(scope.expression, exp.Select) else None
        self._aliases = {
            item.alias.lower(): item
            for item in (self._select.selects if self._select else ())
            if isinstance(item, exp.Alias) and item.this.name.lower() != item.alias.lower()
        }

    def check_stars(self) -> None:
        """`*` and USING mean columns that only the table knows."""
        select, unknown = self._select, self._unknown()
        if select is None:
            return
        for item in select.selects:
            if item.is_star and not isinstance(select.parent, exp.Exists):
                whose = getattr(item, "table", "").lower()
                asked = [t for t in unknown if not whose or t.alias_or_name.lower() == whose]
                self._refuse_if(asked, item.sql())
        if any(join.args.get("using") for join in select.args.get("joins") or ()):
            self._refuse_if(unknown, "USING")
        self._refuse_if([s for s in unknown if s.alias_column_names], "a list of column aliases")

    def _refuse_if(self, unknown: list[exp.Table], what: str) -> None:
        if unknown:
            raise _cannot_tell(what, unknown)

    def may_be_alias(self, column: exp.Column) -> bool:
        """Whether a name could also mean an item of the SELECT list."""
        item = self._aliases.get(column.name.lower())
        if column.table or item is None:
            return False
        inside = any(node is item for node in _ancestors(column))
        return not inside and bool(self._unknown())

    def check_alias(self, column: exp.Column) -> None:
        """An alias is one only if no table has a column of its name."""
        unknown = self._unknown()
        if len(unknown) == 1 and column.name.lower() in self._told[id(unknown[0])]:
            return
        raise _cannot_tell(f"{column.name} (the column or the alias)", unknown)

    def take(self, column: exp.Column) -> None:
        """Note whose column it is; what stands behind a column's name is a field of it."""
        parts = [part.name.lower() for part in column.parts]
        for alias, name in pairwise(parts):
            if (source := self._visible(alias)) is not None:
                if self._lacks_columns(source):
                    self._told[id(source)].add(name)
                return
        self._take_bare(column, parts[0], has_fields=len(parts) > 1)

    def _take_bare(self, column: exp.Column, name: str, *, has_fields: bool) -> None:
        """The same for a name without its table."""
        if any(name in self._names(source) for source in self._sources.values()):
            return
        unknown = self._unknown()
        if len(unknown) > 1 or (unknown and has_fields):
            raise _cannot_tell(column.sql(), unknown)
        if unknown:
            self._told[id(unknown[0])].add(name)
        elif self._scope.parent is not None:  # a subquery may name columns of the query around it
            _Inference(self._scope.parent, self._known, self._told).take(column)

    def _visible(self, alias: str) -> object:
        """What an alias means here; a subquery sees those of the queries around it."""
        scope: Scope | None = self._scope
        while scope is not None:
            for name, (_, source) in named_sources(scope).items():
                if name.lower() == alias:
                    return source
            scope = scope.parent
        return None

    def _unknown(self) -> list[exp.Table]:
        return [source for source in self._sources.values() if self._lacks_columns(source)]

    def _lacks_columns(self, source: object) -> TypeGuard[exp.Table]:
        return is_table(source) and self._known[id(source)] is None

    def _names(self, source: object) -> set[str]:
        """The columns that a source is known to have."""
        if is_table(source):
            return set(self._known[id(source)] or ())
        expression = source.expression if isinstance(source, Scope) else source
        names: set[str] = set()
        if isinstance(expression, exp.Query):
            names |= {name.lower() for name in expression.named_selects}
        node = expression.parent if isinstance(expression, exp.Query) else expression
        if isinstance(node, (exp.Subquery, exp.CTE, exp.UDTF, exp.Table)):
            names |= {name.lower() for name in node.alias_column_names}
        return names


def _ancestors(node: exp.Expr) -> Iterable[exp.Expr]:
    found = node.parent
    while found is not None:
        yield found
        found = found.parent


def _cannot_tell(what: str, tables: list[exp.Table]) -> UnsupportedSQLError:
    names = [table.name for table in tables] or ["table"]
    entries = ", ".join(f"{name!r}: {{'columns': [...]}}" for name in dict.fromkeys(names))
    return UnsupportedSQLError(
        Reason.COLUMNS_UNKNOWN,
        f"{what}: the text does not tell whose columns are meant; say what columns there are with "
        f"sources={{{entries}}}",
    )
