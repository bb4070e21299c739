"""The words of a statement with their places, cut as Spark's own lexer cuts them.

Not sqlglot's tokenizer: that one swallows everything after SHOW, EXPLAIN and OPTIMIZE into one
token, glues CLUSTER and BY together, splits `10L` into three tokens at one place, and reads 'it''s'
as two strings. Here nothing but an open quote or comment is an error; whether a query makes sense
is for Spark to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import NoReturn

from dynamic_tables.errors import InvalidInput, StatementError
from dynamic_tables.names import MAX_PARTS
from dynamic_tables.reasons import Reason

# A line comment goes on after a backslash at the end of the line: SqlBaseLexer.g4 says so.
_TOKEN = re.compile(
    r"""(?P<skip>\s+|--(?:\\\n|[^\r\n])*)
      | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
      | (?P<string>'(?:[^'\\]++|\\.|'')*+'|"(?:[^"\\]++|\\.|"")*+")
      | (?P<quoted>`(?:[^`]++|``)*+`)
      | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))
      | (?P<word>\w+)
      | (?P<symbol>/\*\+?|.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*(?!\+)|\*/")  # /*+ opens a hint, never a comment
_ESCAPE = re.compile(
    r"""\\u([0-9a-fA-F]{4})|\\U((?:000|001)[0-9a-fA-F]{5})|\\([0-3][0-7]{2})|\\(.)|''|\"\"""",
    re.DOTALL,
)
_ESCAPED = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": r"\%",
    "_": r"\_",
}
_LAST_CODE_POINT = 0x10FFFF


class TokenKind(Enum):
    """What a token is."""

    WORD = auto()
    QUOTED = auto()  # an identifier in back-ticks
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()
    END = auto()


_KINDS = {
    "raw": TokenKind.STRING,
    "string": TokenKind.STRING,
    "quoted": TokenKind.QUOTED,
    "number": TokenKind.NUMBER,
    "word": TokenKind.WORD,
    "symbol": TokenKind.SYMBOL,
}


@dataclass(frozen=True, slots=True)
class Token:
    """A token; `text[token.start:token.end]` is how it was written."""

    kind: TokenKind
    value: str  # without quotes and escapes; words and symbols as written
    start: int
    end: int

    def is_word(self, word: str) -> bool:
        return self.kind is TokenKind.WORD and self.value.upper() == word

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is TokenKind.SYMBOL and self.value == symbol


def scan(text: str) -> Iterator[Token]:
    """The tokens one by one, without comments; the last one is END."""
    position = 0
    while found := _TOKEN.match(text, position):
        group, written = str(found.lastgroup), found.group()
        position = found.end()
        if written == "/*":
            position = _comment_end(text, found.start())
        elif group == "symbol" and written in "'\"`":
            raise _unclosed(text, found.start(), f"the quote {written}")
        elif group != "skip":
            value = _value(group, written)
            yield Token(_KINDS[group], value, found.start(), position)
    yield Token(TokenKind.END, "", len(text), len(text))


def leading_words(text: str, limit: int) -> tuple[str, ...]:
    """The first words in upper case, at most `limit`, without a look at what follows them."""
    words: list[str] = []
    with suppress(StatementError):  # what cannot be read ends the words like anything else
        for token in islice(scan(text), limit):
            if token.kind is not TokenKind.WORD:
                break
            words.append(token.value.upper())
    return tuple(words)


def _comment_end(text: str, start: int) -> int:
    """The place after a comment; comments nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise _unclosed(text, start, "the comment /*")


def _unclosed(text: str, start: int, what: str) -> StatementError:
    return StatementError(
        f"{what} is never closed",
        reason=Reason.SYNTAX,
        text=text,
        position=start,
        hint="close it; a quote inside a text is written twice or after a backslash",
    )


def _value(group: str, written: str) -> str:
    if group == "raw":
        return written[2:-1]
    if group == "quoted":
        return written[1:-1].replace("``", "`")
    if group == "string":
        return _unescape(written[1:-1], written[0])
    return written


def _unescape(body: str, quote: str) -> str:
    """What Spark makes of a string literal."""

    def one(found: re.Match[str]) -> str:
        short, long, octal, letter = found.groups()
        if short or long:
            code = int(short or long, 16)
            return chr(code) if code <= _LAST_CODE_POINT else found.group()
        if octal:
            return chr(int(octal, 8))
        if letter:
            return _ESCAPED.get(letter, letter)
        return quote if found.group() == quote * 2 else found.group()

    # Two \u escapes may form one character beyond the first plane; half of one is no character.
    return _ESCAPE.sub(one, body).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Cursor:
    """A place in the tokens of one statement, and the errors that name it."""

    def __init__(self, text: str, *, usage: str = "") -> None:
        self.text = text
        self.usage = usage  # the hint of errors that have no better one
        self._tokens = list(scan(text))
        self._index = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.ahead(0)

    def ahead(self, count: int) -> Token:
        return self._tokens[min(self._index + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self.token
        self._index = min(self._index + 1, len(self._tokens) - 1)
        return token

    def at(self, *words: str) -> bool:
        return all(self.ahead(i).is_word(word) for i, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Go past `words` if they come next, all of them."""
        if found := self.at(*words):
            self._index += len(words)
        return found

    def accept_symbol(self, symbol: str) -> bool:
        if found := self.token.is_symbol(symbol):
            self._index += 1
        return found

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                self.unexpected(word)

    def expect_symbol(self, symbol: str, *, hint: str | None = None) -> None:
        if not self.accept_symbol(symbol):
            self.unexpected(symbol, hint=hint)

    def identifier(self, what: str) -> str:
        """A plain word, or anything in back-ticks."""
        token = self.token
        plain = token.kind is TokenKind.WORD and not token.value[0].isdigit()
        if not (plain or (token.kind is TokenKind.QUOTED and token.value)):
            written = self.text[token.start : token.end]
            odd = written[:1].isdigit() or token.kind is TokenKind.STRING
            self.unexpected(what, hint=f"write it in back-ticks: `{token.value}`" if odd else None)
        return self.take().value

    def name(self) -> tuple[str, ...]:
        """A table name of one to three parts."""
        parts = [self.identifier("a table name")]
        while self.accept_symbol("."):
            if len(parts) == MAX_PARTS:
                self.unexpected("a name of at most three parts", hint="write catalog.schema.table")
            parts.append(self.identifier("the next part of the name"))
        odd = self.token.is_symbol("-") or self.text[self.token.start :].startswith(".")
        if odd:  # my-table, sales.2024
            self.unexpected("the end of the name", hint="write odd parts in back-ticks: `my-table`")
        return tuple(parts)

    def finish(self, expected: str = "the end of the statement") -> None:
        """Nothing may follow but one semicolon."""
        semicolon = self.accept_symbol(";")
        if self.token.kind is TokenKind.END:
            return
        if not semicolon:
            self.unexpected(expected)
        self.fail(
            "only one statement at a time",
            reason=Reason.SEVERAL_STATEMENTS,
            hint="send what follows the semicolon as a statement of its own",
        )

    def unexpected(self, expected: str, *, hint: str | None = None) -> NoReturn:
        token = self.token
        at_end = token.kind is TokenKind.END
        found = "the end of the text" if at_end else self.text[token.start : token.end]
        self.fail(f"expected {expected}, found {found}", reason=Reason.SYNTAX, hint=hint)

    def fail(
        self,
        message: str,
        *,
        reason: Reason,
        at: int | None = None,
        about: str | None = None,
        hint: str | None = None,
    ) -> NoReturn:
        raise StatementError(
            message,
            reason=reason,
            text=self.text,
            position=self.token.start if at is None else at,
            about=about,
            hint=hint or self.usage,
        ) from None

    def refuse(self, error: InvalidInput, *, at: int) -> NoReturn:
        """Raise an error of the options again, with its place."""
        self.fail(error.message, reason=error.reason, at=at, about=error.about, hint=error.hint)
