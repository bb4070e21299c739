"""Versions that the user names: what an engine says of them becomes an error of ours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from builders import definition

from dynamic_tables.errors import InvalidInput, RefreshError
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.versions import at_versions


def lake(reason: Reason) -> Any:
    """A lake whose newest version is 7, and whose engine raises OSError."""
    return SimpleNamespace(
        faults=(OSError,),
        told=lambda error, about: RefreshError(str(error), reason=reason, about=about),
        standing=lambda _: SimpleNamespace(version=7),
    )


@pytest.mark.parametrize(
    ("reason", "versions", "kind", "expected"),
    [
        (Reason.HISTORY_GONE, (3,), InvalidInput, Reason.HISTORY_GONE),
        (Reason.QUERY_FAILED, (5, 9), InvalidInput, Reason.HISTORY_GONE),  # 8 and 9 never were
        (Reason.QUERY_FAILED, (5, 7), RefreshError, Reason.QUERY_FAILED),
        (Reason.HISTORY_GONE, (None,), RefreshError, Reason.HISTORY_GONE),
        (Reason.QUERY_FAILED, (-1,), InvalidInput, Reason.BAD_VALUE),
        (Reason.QUERY_FAILED, (4, 3), InvalidInput, Reason.BAD_VALUE),
    ],
)
def test_what_a_failure_means(
    reason: Reason, versions: tuple[int | None, ...], kind: type, expected: Reason
) -> None:
    table = definition("t")
    with pytest.raises(kind) as caught, at_versions(cast("Any", lake(reason)), table, *versions):
        raise OSError("the engine's own words")
    error = caught.value
    assert (error.reason, error.about) == (expected, str(table.name))
    assert kind is RefreshError or "newest version is 7" in error.hint
