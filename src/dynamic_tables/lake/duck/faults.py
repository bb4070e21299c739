"""What DuckDB raises, told as one of our errors: object, reason and way out."""

from __future__ import annotations

import duckdb

from dynamic_tables.errors import DynamicTablesError, RefreshError
from dynamic_tables.lake import telling
from dynamic_tables.reasons import Reason

DUCK_FAULTS = (duckdb.Error,)

# Whoever runs the query again on the same data gets these again; all others may pass.
_QUERYS = (
    duckdb.DataError,
    duckdb.IntegrityError,
    duckdb.NotSupportedError,
    duckdb.ProgrammingError,
)

_WORDS = (
    (r"Transaction conflict|[Ww]rite-write conflict", Reason.COMMIT_FAILED),
    (r"INTERRUPT", Reason.INTERRUPTED),
    (r"Out of Memory Error|failed to allocate", Reason.ENGINE_FAILED),
    (r"No space left on device|Disk quota exceeded", Reason.DISK_FULL),
    (r"Permission denied", Reason.NO_PERMISSION),
    (
        r"No snapshot found at version|does not exist at version|No such file or directory",
        Reason.HISTORY_GONE,
    ),
)


def told(error: BaseException, *, about: str) -> RefreshError:
    otherwise = Reason.QUERY_FAILED if isinstance(error, _QUERYS) else Reason.ENGINE_FAILED
    return telling.told(str(error), _WORDS, otherwise, sentence=headline(error), about=about)


def headline(error: BaseException) -> str:
    """The sentence in an error, without DuckDB's picture of the statement."""
    if isinstance(error, DynamicTablesError):
        return error.message
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
