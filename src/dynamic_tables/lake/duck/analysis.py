"""What a query's references mean for its definition; what CREATE refuses about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from dynamic_tables._tokens import Token, TokenKind, scan
from dynamic_tables.errors import InvalidInput, StatementError
from dynamic_tables.lake.base import SourceState
from dynamic_tables.lake.duck.pinning import Reading
from dynamic_tables.reasons import Reason

ABOUT_LETTERS = 60  # of an expression, to recognise it by
AFTER_THE_LIST = frozenset(
    ["FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "USING",
     "UNION", "EXCEPT", "INTERSECT"]
)  # fmt: skip


def check_clock(reading: Reading, states: Collection[SourceState]) -> None:
    """A bare word like current_date is the clock, unless a column is called so."""
    words = {word for found in reading.found.values() for word in found.clock_words}
    columns = {column.name.lower() for state in states for column in state.columns}
    names = columns | {name for found in reading.found.values() for name in found.aliases}
    for word in sorted(words & names):
        raise InvalidInput(
            f"{word} is the clock and a column",
            reason=Reason.ANALYSIS_FAILED,
            about=word,
            hint=f"write t.{word} for the column of t, or give the column another name",
        )


def check_select_list(reading: Reading, query: str) -> None:
    for place in reading.found[query].unnamed():
        raise InvalidInput(
            "every output column needs a name",
            reason=Reason.BAD_COLUMNS,
            about=" ".join(column_text(query, place).split())[:ABOUT_LETTERS],
            hint="write … AS some_name",
        )


def column_text(query: str, place: int) -> str:
    """The output column around a place, as it is written.

    DuckDB tells where an expression begins, not where it ends. So the text is cut as a reader would
    cut it: at the commas of its own SELECT and at the word that ends the list.

    >>> column_text("SELECT DISTINCT a, (a + 1) * f(b, 2) FROM t", 20)
    '(a + 1) * f(b, 2)'
    """
    try:
        tokens = list(_nested(query))
    except StatementError:  # a quote that DuckDB reads and we do not
        return query[place:].strip()
    level, start = _own_select(tokens, place)
    mine = [token for token, depth in tokens if depth == level and token.start >= start]
    starts = [token.end for token in mine if token.start < place and _begins_item(token)]
    stops = [token.start for token in mine if token.start > place and _ends_item(token)]
    stops += [token.start for token, depth in tokens if depth < level and token.start > place]
    return query[max([start, *starts]) : min([len(query), *stops])].strip()


def _nested(query: str) -> Iterator[tuple[Token, int]]:
    """The tokens, each with the number of brackets around it."""
    depth = 0
    for token in scan(query):
        bracket = token.value if token.kind is TokenKind.SYMBOL else " "
        depth -= bracket in ")]}"
        yield token, depth
        depth += bracket in "([{"


def _own_select(tokens: Iterable[tuple[Token, int]], place: int) -> tuple[int, int]:
    """The outermost SELECT around a place: its depth, and where its list begins."""
    around: list[tuple[int, int]] = []
    for token, depth in tokens:
        if token.start >= place:
            break
        around = [outer for outer in around if outer[0] <= depth]
        if token.is_word("SELECT"):
            around.append((depth, token.end))
    return around[0] if around else (0, place)


def _begins_item(token: Token) -> bool:
    return token.is_symbol(",") or token.is_word("DISTINCT") or token.is_word("ALL")


def _ends_item(token: Token) -> bool:
    ended = token.is_symbol(",") or token.is_symbol(";")
    return ended or (token.kind is TokenKind.WORD and token.value.upper() in AFTER_THE_LIST)
