"""CREATE | ALTER | REFRESH … DYNAMIC TABLE: texts become frozen statements, or errors with a place.

The grammar is in `_USAGE` and, for the options, in `options.SPECS`; below, one function for each
statement. The query after AS is never read here, only cut out: what it means is for Spark and the
compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dynamic_tables import _clauses as clauses
from dynamic_tables._tokens import Cursor, TokenKind, leading_words
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason

Parts = tuple[str, ...]  # a table name as written: one to three parts, without back-ticks


class CreateMode(StrEnum):
    """What CREATE does when the table exists."""

    CREATE = "CREATE"
    OR_REPLACE = "CREATE OR REPLACE"
    OR_ALTER = "CREATE OR ALTER"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStatement:
    """CREATE DYNAMIC TABLE."""

    parts: Parts
    query: str  # the user's text after AS, verbatim but for outer white space and semicolon
    options: Options
    mode: CreateMode = CreateMode.CREATE
    if_not_exists: bool = False
    before: str = field(default="", compare=False)  # the statement up to the query


@dataclass(frozen=True, slots=True)
class SetOptions:
    """ALTER … SET."""

    options: Mapping[str, Any]  # checked values by field, for `Options.replace_values`


@dataclass(frozen=True, slots=True)
class UnsetOptions:
    """ALTER … UNSET."""

    names: tuple[str, ...]  # fields, for `Options.unset`


@dataclass(frozen=True, slots=True)
class Suspend:
    """ALTER … SUSPEND."""


@dataclass(frozen=True, slots=True)
class Resume:
    """ALTER … RESUME."""


@dataclass(frozen=True, slots=True)
class RenameTo:
    """ALTER … RENAME TO."""

    parts: Parts


AlterAction = SetOptions | UnsetOptions | Suspend | Resume | RenameTo


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterStatement:
    """ALTER DYNAMIC TABLE."""

    parts: Parts
    action: AlterAction


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshStatement:
    """REFRESH DYNAMIC TABLE."""

    tables: tuple[Parts, ...]
    upstream: bool = False
    full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainStatement:
    """EXPLAIN of a table that exists, or of one that could be created."""

    target: Parts | CreateStatement


@dataclass(frozen=True, slots=True)
class ShowStatement:
    """SHOW DYNAMIC TABLES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeStatement:
    """DESCRIBE DYNAMIC TABLE."""

    parts: Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class DropStatement:
    """DROP DYNAMIC TABLE."""

    parts: Parts
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeStatement:
    """OPTIMIZE DYNAMIC TABLE."""

    parts: Parts


Statement = (
    CreateStatement
    | AlterStatement
    | RefreshStatement
    | ExplainStatement
    | ShowStatement
    | DescribeStatement
    | DropStatement
    | OptimizeStatement
)


def parse(text: str) -> Statement | None:
    """The statement, or None if it is not one of ours and belongs to Spark.

    >>> parse("DROP DYNAMIC TABLE IF EXISTS sales.by_day")
    DropStatement(parts=('sales', 'by_day'), if_exists=True, cascade=False)
    >>> parse("DROP TABLE sales.by_day") is None
    True
    """
    words = leading_words(text, _LONGEST_LEAD)
    lead = next((lead for lead in _PARSERS if words[: len(lead)] == lead), None)
    if lead is None:
        return None
    cursor = Cursor(text, usage=_USAGE[_verb(lead)])
    cursor.expect(*lead)
    return _PARSERS[lead](cursor)


# ---- statements --------------------------------------------------------------------------------


def _create(cursor: Cursor, mode: CreateMode) -> CreateStatement:
    if_not_exists = _if_not_exists(cursor, mode)
    if cursor.at("AS") and not cursor.ahead(1).is_symbol("."):
        cursor.unexpected("a table name", hint="if the table is to be called as, write `as`")
    parts = cursor.name()
    if cursor.token.is_symbol("("):
        cursor.unexpected("AS", hint="columns are not declared, they are those of the query")
    values, places = clauses.options(cursor)
    clauses.check_together(cursor, values, places)
    start, query = _query(cursor)
    return CreateStatement(
        parts=parts,
        query=query,
        before=cursor.text[:start],
        options=Options(**values),
        mode=mode,
        if_not_exists=if_not_exists,
    )


def _if_not_exists(cursor: Cursor, mode: CreateMode) -> bool:
    place = cursor.token.start
    if not cursor.at("IF", "NOT"):
        return False
    cursor.expect("IF", "NOT", "EXISTS")
    if mode is not CreateMode.CREATE:
        cursor.fail(
            f"{mode.value} and IF NOT EXISTS exclude each other",
            reason=Reason.CONTRADICTION,
            at=place,
            hint="leave one of them out",
        )
    return True


def _query(cursor: Cursor) -> tuple[int, str]:
    """The text between AS and the end or the semicolon, and where it begins."""
    if cursor.token.is_symbol(","):
        cursor.unexpected("AS", hint="options are separated by spaces, not by commas")
    if not cursor.at("AS"):
        if cursor.token.kind is TokenKind.END or cursor.token.is_symbol(";"):
            _no_query(cursor)
        cursor.unexpected("an option or AS")
    after_as = cursor.take().end
    if cursor.token.kind is TokenKind.END or cursor.token.is_symbol(";"):
        _no_query(cursor)
    while not (cursor.token.kind is TokenKind.END or cursor.token.is_symbol(";")):
        cursor.take()
    end = cursor.token.start
    cursor.finish()
    written = cursor.text[after_as:end]
    return after_as + len(written) - len(written.lstrip()), written.strip()


def _no_query(cursor: Cursor) -> None:
    cursor.fail("the query is missing", reason=Reason.NO_QUERY, hint="end with AS SELECT …")


def _alter(cursor: Cursor) -> AlterStatement:
    parts = cursor.name()
    action = _alter_action(cursor)
    cursor.finish()
    return AlterStatement(parts=parts, action=action)


def _alter_action(cursor: Cursor) -> AlterAction:
    if cursor.accept("SET"):
        values, _ = clauses.options(cursor, commas=True)
        if not values:
            cursor.unexpected("an option")
        return SetOptions(values)
    if cursor.accept("UNSET"):
        return UnsetOptions(clauses.names(cursor))
    if cursor.accept("SUSPEND"):
        return Suspend()
    if cursor.accept("RESUME"):
        return Resume()
    if cursor.accept("RENAME", "TO"):
        return RenameTo(cursor.name())
    return cursor.unexpected("SET, UNSET, SUSPEND, RESUME or RENAME TO")


def _refresh(cursor: Cursor) -> RefreshStatement:
    tables = [cursor.name()]
    while cursor.accept_symbol(","):
        tables.append(cursor.name())
    upstream = cursor.accept("WITH")
    if upstream:
        cursor.expect("UPSTREAM")
    full = cursor.accept("FULL")
    cursor.finish("a comma, WITH UPSTREAM, FULL or the end")
    return RefreshStatement(tables=tuple(tables), upstream=upstream, full=full)


def _explain(cursor: Cursor) -> ExplainStatement:
    return ExplainStatement(target=_one_name(cursor))


def _show(cursor: Cursor) -> ShowStatement:
    cursor.finish()
    return ShowStatement()


def _drop(cursor: Cursor) -> DropStatement:
    if_exists = cursor.accept("IF", "EXISTS")
    parts = cursor.name()
    cascade = cursor.accept("CASCADE")
    cursor.finish("CASCADE or the end")
    return DropStatement(parts=parts, if_exists=if_exists, cascade=cascade)


def _one_name(cursor: Cursor) -> Parts:
    parts = cursor.name()
    cursor.finish()
    return parts


# ---- which statement it is ---------------------------------------------------------------------


def _creating(mode: CreateMode) -> Callable[[Cursor], CreateStatement]:
    return lambda cursor: _create(cursor, mode)


def _explaining(mode: CreateMode) -> Callable[[Cursor], ExplainStatement]:
    return lambda cursor: ExplainStatement(target=_create(cursor, mode))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PARSERS: dict[tuple[str, ...], Callable[[Cursor], Statement]] = {
    **{_words(f"{mode.value} DYNAMIC TABLE"): _creating(mode) for mode in CreateMode},
    **{_words(f"EXPLAIN {mode.value} DYNAMIC TABLE"): _explaining(mode) for mode in CreateMode},
    _words("ALTER DYNAMIC TABLE"): _alter,
    _words("REFRESH DYNAMIC TABLE"): _refresh,
    _words("EXPLAIN DYNAMIC TABLE"): _explain,
    _words("SHOW DYNAMIC TABLES"): _show,
    _words("DESCRIBE DYNAMIC TABLE"): lambda cursor: DescribeStatement(parts=_one_name(cursor)),
    _words("DESC DYNAMIC TABLE"): lambda cursor: DescribeStatement(parts=_one_name(cursor)),
    _words("DROP DYNAMIC TABLE"): _drop,
    _words("OPTIMIZE DYNAMIC TABLE"): lambda cursor: OptimizeStatement(parts=_one_name(cursor)),
}
_LONGEST_LEAD = max(len(lead) for lead in _PARSERS)

_USAGE = {
    "CREATE": "CREATE [OR REPLACE | OR ALTER] DYNAMIC TABLE [IF NOT EXISTS] name [options] "
    "AS SELECT …",
    "ALTER": "ALTER DYNAMIC TABLE name SET … | UNSET … | SUSPEND | RESUME | RENAME TO new_name",
    "REFRESH": "REFRESH DYNAMIC TABLE name [, name …] [WITH UPSTREAM] [FULL]",
    "EXPLAIN": "EXPLAIN DYNAMIC TABLE name",
    "SHOW": "SHOW DYNAMIC TABLES",
    "DESCRIBE": "DESCRIBE DYNAMIC TABLE name",
    "DESC": "DESCRIBE DYNAMIC TABLE name",
    "DROP": "DROP DYNAMIC TABLE [IF EXISTS] name [CASCADE]",
    "OPTIMIZE": "OPTIMIZE DYNAMIC TABLE name",
}


def _verb(lead: tuple[str, ...]) -> str:
    return "CREATE" if "CREATE" in lead else lead[0]
