"""What a query's references mean for its definition; what CREATE refuses about them."""

from __future__ import annotations

from collections.abc import Collection

from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake.base import SourceState
from dynamic_tables.lake.duck.pinning import Reading
from dynamic_tables.reasons import Reason


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
        beginning = " ".join(query[place : place + 40].split())
        raise InvalidInput(
            "every output column needs a name",
            reason=Reason.BAD_COLUMNS,
            about=beginning,
            hint="write … AS some_name",
        )
