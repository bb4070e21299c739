"""What an engine raises, told as one of our errors; each lake knows its engine's words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynamic_tables.errors import RefreshError
from dynamic_tables.reasons import Reason

Words = Sequence[tuple[str, Reason]]  # a pattern and what it means; the first that occurs decides

WAYS_OUT = {
    Reason.COMMIT_FAILED: "somebody else changed the table at the same time; refresh again",
    Reason.INTERRUPTED: "the table is as it was; refresh again",
    Reason.ENGINE_FAILED: "the table is as it was; refresh again once engine and storage are well",
    Reason.DISK_FULL: "free some space, then refresh again",
    Reason.NO_PERMISSION: "give this user read and write access to the folder",
    Reason.HISTORY_GONE: "refresh it together with its sources: refresh(..., upstream=True); "
    "REFRESH DYNAMIC TABLE … FULL recomputes it from what there is now",
    Reason.QUERY_FAILED: "the table is as it was; mend the query or its data, then refresh again",
}


def told(text: str, words: Words, otherwise: Reason, *, sentence: str, about: str) -> RefreshError:
    """The error for one table, which is as it was; `otherwise` is what an error is that no words
    fit: who made it, the query or its surroundings, only the engine knows."""
    meant = (reason for pattern, reason in words if re.search(pattern, text))
    reason = next(meant, otherwise)
    return RefreshError(sentence, reason=reason, about=about, hint=WAYS_OUT[reason])
