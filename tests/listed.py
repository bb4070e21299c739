"""Tables of a lake, read by the list of their files: Delta would plan a second for each of them.

That such a reading is right is what `tests/spark/test_files.py` shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dynamic_tables as dt


def session_like(tables: dt.DynamicTables) -> Any:
    """A new session with the settings of the lake's own."""
    from dynamic_tables.lake import jvm

    session = tables.spark.newSession()
    for key, value in jvm.settings(tables.spark).items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def newest(tables: dt.DynamicTables, session: Any, name: str) -> Any:
    """What a reader finds under a name now."""
    from dynamic_tables.lake import snapshots
    from dynamic_tables.lake.files import rows_at

    found = [state.definition for state in tables.list() if state.definition.name.name == name]
    place = found[0].location if found else None
    log = (
        snapshots.delta_log_by_path(session, place)
        if place is not None
        else snapshots.delta_log_by_name(session, name)
    )
    version = snapshots.newest_snapshot(session, log).version()
    rows = rows_at(session, place or log.dataPath().toString(), version)
    return tables.lake.shown(rows, found[0]) if found else rows


def listed(tables: dt.DynamicTables, names: Iterable[str]) -> Any:
    """A session in which these tables are views of their newest versions."""
    session = session_like(tables)
    for name in names:
        newest(tables, session, name).createOrReplaceTempView(name)
    return session
