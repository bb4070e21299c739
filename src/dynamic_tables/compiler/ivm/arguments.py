"""What `compile_ivm` was given: a wrong name or type is refused, never passed over."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from dynamic_tables.errors import InvalidInput
from dynamic_tables.reasons import Reason

SOURCE_WORDS = ("catalog", "schema", "columns")


def check_dialect(dialect: object, dialects: Collection[str]) -> None:
    if dialect not in dialects:
        known = " and ".join(dialects)
        raise _bad(
            f"dialect={dialect!r}", f"the dialects are {known}", f"dialect={min(dialects)!r}"
        )


def check_view(view_sql: object) -> None:
    if not isinstance(view_sql, str):
        raise _bad(f"view_sql={view_sql!r}", "the view is a text", 'compile_ivm("SELECT …")')


def check_names(**given: object) -> None:
    """Where the table is."""
    for argument, name in given.items():
        if not isinstance(name, str) or not name:
            raise _bad(f"{argument}={name!r}", "a name is wanted", f'{argument}="main"')


def check_sources(sources: object) -> None:
    """`{"orders": {"catalog": …, "schema": …, "columns": […]}}`."""
    if not isinstance(sources, Mapping):
        raise _bad(f"sources={sources!r}", "tables by their names are wanted", _example("orders"))
    for table, entry in sources.items():
        if not isinstance(table, str) or not isinstance(entry, Mapping):
            raise _bad(f"sources[{table!r}]", "a table has a dict of its own", _example(table))
        _check_source(table, entry)


def _check_source(table: str, entry: Mapping[Any, Any]) -> None:
    for word, value in entry.items():
        about = f"sources[{table!r}][{word!r}]"
        if word not in SOURCE_WORDS:
            near = get_close_matches(str(word), SOURCE_WORDS, n=1)
            hint = f"did you mean {near[0]}?" if near else _example(table)
            raise _bad(about, f"there are {', '.join(SOURCE_WORDS)}", hint)
        if value is not None and not _fits(word, value):
            wanted = "a list of names" if word == "columns" else "a name"
            raise _bad(about, f"{wanted} is wanted, not {value!r}", _example(table))


def _fits(word: str, value: object) -> bool:
    if word != "columns":
        return isinstance(value, str)
    return (
        isinstance(value, Collection)
        and not isinstance(value, str)
        and all(isinstance(column, str) for column in value)
    )


def _example(table: object) -> str:
    return f'sources={{{table!r}: {{"catalog": "dl", "schema": "main", "columns": ["id"]}}}}'


def _bad(about: str, message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, reason=Reason.BAD_VALUE, about=about, hint=hint)
