"""Whether a table still has the columns and properties that it was read with."""

from __future__ import annotations

import json
from typing import Any

from dynamic_tables.errors import Refused
from dynamic_tables.reasons import Reason

HIGH_WATER_MARK = "delta.identity.highWaterMark"  # of an identity column: the last number given


def check_unaltered(read: Any, known: Any, table: str) -> None:
    if read != known:
        raise Refused(
            "its columns or properties were changed meanwhile; nothing was committed",
            reason=Reason.COMMIT_FAILED,
            about=table,
            hint="run it again",
        )


def without_marks(schema: str) -> str:
    """A schema without what every INSERT into a table with an identity column moves.

    >>> without_marks('{"name": "id", "metadata": {"delta.identity.highWaterMark": 7}}')
    '{"name": "id", "metadata": {}}'
    """
    return json.dumps(json.loads(schema, object_pairs_hook=_without_mark))


def _without_mark(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in pairs if key != HIGH_WATER_MARK}
