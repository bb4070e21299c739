"""What a file system says of a folder that is to go: Hadoop's local one returns False."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from builders import definition

from dynamic_tables.errors import RefreshError
from dynamic_tables.lake import stored
from dynamic_tables.reasons import Reason


@pytest.mark.parametrize(("deleted", "there"), [(True, False), (False, False), (False, True)])
def test_a_folder_that_cannot_be_deleted_is_told(
    monkeypatch: pytest.MonkeyPatch, deleted: bool, there: bool
) -> None:
    """One that was not there is deleted all the same."""
    files = SimpleNamespace(delete=lambda *_: deleted, exists=lambda _: there)
    monkeypatch.setattr(stored.jvm, "hadoop_path", lambda *_: ("path", files))
    lake: Any = SimpleNamespace(spark=None, _stored_id=lambda _: None)
    if not there:
        stored.StoredTables.erase(lake, definition("t"))
        return
    with pytest.raises(RefreshError) as caught:
        stored.StoredTables.erase(lake, definition("t"))
    assert caught.value.reason is Reason.NO_PERMISSION
