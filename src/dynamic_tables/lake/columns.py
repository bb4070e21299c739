"""Output columns that can be kept under their names, on every lake."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dynamic_tables.definition import Column
from dynamic_tables.errors import InvalidInput
from dynamic_tables.names import check_not_reserved
from dynamic_tables.reasons import Reason

OTHER_NAME = "give the column another name with AS"


def check_names(columns: Sequence[Column], *, feed: Collection[str]) -> None:
    """Refuse names that are ours, that occur twice, or that the lake's change feed has."""
    seen: set[str] = set()
    for column in columns:
        check_not_reserved(column.name, what="column")
        if column.name.lower() in seen:
            raise InvalidInput(
                "two output columns have this name",
                reason=Reason.BAD_COLUMNS,
                about=column.name,
                hint="give each column a name of its own with AS",
            )
        if column.name.lower() in feed:
            raise InvalidInput(
                "the change feed has a column of this name",
                reason=Reason.RESERVED_NAME,
                about=column.name,
                hint=OTHER_NAME,
            )
        seen.add(column.name.lower())
