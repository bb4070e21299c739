"""Why a query, or a part of one, cannot be kept up to date by its changes."""

from __future__ import annotations

from dynamic_tables.reasons import Reason


class NotIncremental(Exception):
    """The compiler's way to say `full`; it never leaves the compiler."""

    def __init__(self, reason: Reason, what: str) -> None:
        super().__init__(what)
        self.reason = reason
        self.what = what


def unfaithful(what: str) -> NotIncremental:
    """A construct that the compiler does not know well enough to promise anything."""
    return NotIncremental(Reason.SQL_NOT_FAITHFUL, what)
