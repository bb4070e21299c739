"""What DuckDB raises, told as one of our errors: object, reason and way out."""

from __future__ import annotations

import re

import duckdb

from dynamic_tables.errors import DynamicTablesError, RefreshError
from dynamic_tables.reasons import Reason

DUCK_FAULTS = (duckdb.Error,)

# The first pattern that occurs in the message decides.
_PATTERNS: tuple[tuple[str, Reason, str], ...] = (
    (
        r"Transaction conflict|[Ww]rite-write conflict",
        Reason.COMMIT_FAILED,
        "somebody else changed the table at the same time; refresh again",
    ),
    (r"INTERRUPT", Reason.INTERRUPTED, "the table is as it was; refresh again"),
    (
        r"No space left on device|Disk quota exceeded",
        Reason.DISK_FULL,
        "free some space, then refresh again",
    ),
    (
        r"Permission denied",
        Reason.NO_PERMISSION,
        "give this user read and write access to the folder",
    ),
    (
        r"No snapshot found at version|does not exist at version|No such file or directory",
        Reason.HISTORY_GONE,
        "refresh it together with its sources: refresh(..., upstream=True)",
    ),
)


def told(
    error: BaseException, *, about: str, otherwise: Reason = Reason.QUERY_FAILED
) -> RefreshError:
    """The error for one table; the table is as it was."""
    text = str(error)
    for pattern, reason, hint in _PATTERNS:
        if re.search(pattern, text):
            return RefreshError(headline(error), reason=reason, about=about, hint=hint)
    return RefreshError(
        headline(error),
        reason=otherwise,
        about=about,
        hint="the table is as it was; mend the query or its data, then refresh again",
    )


def headline(error: BaseException) -> str:
    """The sentence in an error, without DuckDB's picture of the statement."""
    if isinstance(error, DynamicTablesError):
        return error.message
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
