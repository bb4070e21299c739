"""The console, and the small pieces that everything printed is made of."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from dynamic_tables.errors import DynamicTablesError

PIPE_WIDTH = 160  # columns when nobody's terminal says how many there are
LONG_S = 100.0  # seconds from which minutes read better

Cell = str | Text


class Unheard(OSError):
    """Nobody reads what is printed any more. No BrokenPipeError: an engine that dies raises such
    ones, too."""

    def __init__(self) -> None:
        super().__init__(errno.EPIPE, "nobody reads the output any more")


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Whoever prints decides what that means; rich would end the process, or one thread of it,
        and silence stdout whichever stream broke."""
        self.quiet = True  # else all that could not be printed is kept, and tried again
        raise Unheard


def console(file: TextIO) -> Console:
    """A console on which text is what it is: `[a]` in a table name is no markup."""
    width = None if file.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return _Console(file=file, markup=False, highlight=False, emoji=False, width=width)


def grid(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """A plain table; on a narrow terminal cells take several lines, nothing is cut off."""
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True, header_style="bold"
    )
    for heading in headings:  # neither no_wrap nor min_width: with these, rich cuts cells off
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def error_text(error: DynamicTablesError) -> Text:
    """One paragraph: object, sentence, code, and the next command to type."""
    text = Text()
    if error.about:
        text.append(f"{error.about}: ", style="bold red")
    text.append(error.message, style="red")
    text.append(f" [{error.reason.value}]", style="dim red")
    if error.hint:
        text.append(f"\n  hint: {error.hint}")
    return text


def sql_text(query: str) -> RenderableType:
    """A statement, coloured if the terminal can."""
    return Syntax(
        query.strip(), "sql", theme="ansi_dark", background_color="default", word_wrap=True
    )


def key_values(facts: Mapping[str, Cell]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def frame_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> RenderableType:
    """Rows of a query, values as Spark prints them."""
    return grid(columns, [[value_text(value) for value in row] for row in rows])


def value_text(value: Any) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    return Text(str(value))


def seconds(value: float) -> str:
    """A duration for people.

    >>> seconds(0.1234), seconds(75.04), seconds(125)
    ('0.12 s', '75.0 s', '2 min 5 s')
    """
    if value >= LONG_S:
        return f"{value // 60:.0f} min {value % 60:.0f} s"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"  # noqa: PLR2004


def instant(moment: datetime) -> str:
    """In the reader's own time zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock_time(moment: datetime) -> str:
    """The date only if it is not today's."""
    local = moment.astimezone()
    today = local.date() == datetime.now().astimezone().date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")
