"""Options as they are written in CREATE, ALTER … SET and ALTER … UNSET."""

from __future__ import annotations

from typing import Any

from dynamic_tables._tokens import Cursor, Token, TokenKind
from dynamic_tables._values import repeated
from dynamic_tables.errors import InvalidInput
from dynamic_tables.options import SPECS, Kind, OptionSpec, contradictions, unknown_option
from dynamic_tables.reasons import Reason

_BY_FIELD = {spec.field: spec for spec in SPECS}
_BY_KEYWORD = {spec.keyword: spec for spec in SPECS}
_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})
_WRITTEN_AS = {  # the tokens that may stand after "="
    Kind.LAG: {TokenKind.STRING, TokenKind.WORD},
    Kind.CHOICE: {TokenKind.WORD},
    Kind.SWITCH: {TokenKind.WORD},
    Kind.SHARE: {TokenKind.NUMBER},
    Kind.COUNT: {TokenKind.NUMBER},
}


def options(cursor: Cursor, *, commas: bool = False) -> tuple[dict[str, Any], dict[str, int]]:
    """Options up to AS or the end: values by field, and where each was written."""
    values: dict[str, Any] = {}
    places: dict[str, int] = {}
    must = False  # after a comma
    while must or (cursor.token.kind is TokenKind.WORD and not cursor.at("AS")):
        if not commas:
            _not_a_query(cursor)
        start = cursor.token.start
        spec = _spec(cursor)
        if spec.field == "trigger_at_most_every":
            message = "AT MOST EVERY stands only directly after TRIGGER ON CHANGE"
            hint = f"write {spec.example}"
            cursor.fail(message, reason=Reason.CONTRADICTION, at=start, hint=hint)
        if spec.field in values:
            _given_twice(cursor, spec, start)
        values |= _option(cursor, spec)
        places |= dict.fromkeys(values.keys() - places.keys(), start)
        must = commas and cursor.accept_symbol(",")
    return values, places


def _not_a_query(cursor: Cursor) -> None:
    word = cursor.token.value.upper()
    if word in _QUERY_WORDS:
        message = "AS is missing before the query"
        cursor.fail(message, reason=Reason.NO_QUERY, hint=f"write AS {word} …")


def check_together(cursor: Cursor, values: dict[str, Any], places: dict[str, int]) -> None:
    """Refuse options that exclude each other, at the place of the later one."""
    for found in contradictions(values):
        cursor.fail(
            found.message,
            reason=Reason.CONTRADICTION,
            at=max(places[field] for field in found.fields if field in places),
            about=" and ".join(_BY_FIELD[field].name for field in found.fields),
            hint=found.hint,
        )


def names(cursor: Cursor) -> tuple[str, ...]:
    """The fields named after UNSET, with commas between them."""
    found: list[str] = []
    while True:
        token = cursor.token
        spec = _spec(cursor)
        if spec.field in found:
            _given_twice(cursor, spec, token.start)
        found.append(spec.field)
        rest = spec.name.split()[1:]
        if spec.kind is not Kind.SWITCH or cursor.at("ON"):  # TRIGGER, or TRIGGER ON CHANGE
            cursor.expect(*rest)
        if cursor.token.kind is TokenKind.WORD:
            cursor.unexpected(", or the end", hint="put commas between the names after UNSET")
        if cursor.token.is_symbol("="):
            cursor.unexpected(", or the end", hint="UNSET takes names only; SET takes values")
        if not cursor.accept_symbol(","):
            return tuple(found)


def _spec(cursor: Cursor) -> OptionSpec:
    """The option whose first word comes next; the cursor goes past that word."""
    token = cursor.token
    if token.kind is not TokenKind.WORD:
        cursor.unexpected("the name of an option")
    word = token.value.upper()
    if word not in _BY_KEYWORD:
        cursor.refuse(unknown_option(token.value, [spec.name for spec in SPECS]), at=token.start)
    cursor.take()
    return _BY_KEYWORD[word]


def _given_twice(cursor: Cursor, spec: OptionSpec, start: int) -> None:
    cursor.fail(
        f"{spec.name} is given twice", reason=Reason.SYNTAX, at=start, hint="keep one of them"
    )


def _option(cursor: Cursor, spec: OptionSpec) -> dict[str, Any]:
    if spec.field == "trigger_on_change":
        return _trigger(cursor, spec)
    if spec.kind in {Kind.COLUMNS, Kind.COLUMN}:
        return {spec.field: _columns(cursor, spec)}
    if spec.kind is Kind.TEXT:
        return {spec.field: _checked(cursor, spec, {TokenKind.STRING})}
    cursor.expect_symbol("=", hint=f"write for example {spec.example}")
    return {spec.field: _checked(cursor, spec, _WRITTEN_AS[spec.kind])}


def _trigger(cursor: Cursor, spec: OptionSpec) -> dict[str, Any]:
    cursor.expect("ON", "CHANGE")
    every = None
    if cursor.accept("AT"):
        cursor.expect("MOST", "EVERY")
        every = _checked(cursor, _BY_FIELD["trigger_at_most_every"], {TokenKind.STRING})
    return {spec.field: True, "trigger_at_most_every": every}


def _checked(cursor: Cursor, spec: OptionSpec, kinds: set[TokenKind]) -> Any:
    """The value that comes next, checked against its option."""
    start = cursor.token.start
    if cursor.token.is_symbol("-") or cursor.token.is_symbol("+"):
        cursor.take()  # no option takes a signed number: shown whole in the error
    token = cursor.token
    written = cursor.text[start : token.end]
    if token.kind is TokenKind.END or token.is_symbol(";"):
        cursor.unexpected(f"a value of {spec.name}", hint=f"write for example {spec.example}")
    if token.kind not in kinds or token.start != start:
        cursor.refuse(spec.bad_value(written), at=start)
    try:
        value = spec.parse(token.value)
    except InvalidInput as error:
        cursor.refuse(error, at=start)
    cursor.take()
    return value


def _columns(cursor: Cursor, spec: OptionSpec) -> tuple[str, ...] | str:
    cursor.expect("BY")
    cursor.expect_symbol("(", hint=f"write for example {spec.example}")
    found: list[tuple[str, Token]] = []
    while not found or cursor.accept_symbol(","):
        if not found and cursor.token.is_symbol(")"):
            cursor.refuse(spec.bad_value("()"), at=cursor.token.start)
        token = cursor.token
        found.append((cursor.identifier("a column name"), token))
    columns = [column for column, _ in found]
    if spec.kind is Kind.COLUMN and len(found) > 1:
        cursor.refuse(spec.bad_value(", ".join(columns)), at=found[1][1].start)
    if (index := repeated(columns)) is not None:
        cursor.refuse(spec.repeated_column(columns[index]), at=found[index][1].start)
    cursor.expect_symbol(")")
    return columns[0] if spec.kind is Kind.COLUMN else tuple(columns)
