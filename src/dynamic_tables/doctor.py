"""Checks of everything the product stands on; each says what is found and what to do about it.

A check that is not ok makes `dynamic-tables doctor` fail. One that is ok and has a hint all the
same tells something that the user may want to do.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from dynamic_tables.app import DynamicTables
from dynamic_tables.connect import (
    DUCKLAKE,
    STORE_FILE,
    check_store,
    connect,
    connect_unchecked,
    folder_of,
    is_ducklake,
)
from dynamic_tables.errors import DynamicTablesError
from dynamic_tables.graph import Graph
from dynamic_tables.lake import embedded, jars
from dynamic_tables.lake.places import local_path, location_of, one_driver_at
from dynamic_tables.model import Status, TableState, utc_now
from dynamic_tables.processes import is_dead
from dynamic_tables.refresh.retention import expiring
from dynamic_tables.render import grid
from dynamic_tables.schedule import unconsumed
from dynamic_tables.settings import Settings
from dynamic_tables.store import Claim, Store, open_store
from dynamic_tables.store.migrations import MIGRATIONS
from dynamic_tables.store.server import OLDEST_POSTGRESQL, Server, look_at_server

MINIMUM_PYTHON = (3, 11)
NEEDED_BYTES = 100 * 2**20  # below this, Spark's own temporary files no longer fit
GIGABYTE = 2**30
PROBE_ROWS = 3
ONE_DRIVER = "two drivers may lose each other's commits there, a second one is refused"
TWO_DRIVERS = "one process at a time, or Delta's S3DynamoDBLogStore (spark.delta.logStore.s3a.impl)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str  # what was found
    hint: str | None = None  # what to do about it

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def examine(settings: Settings, *, spark: bool, say: Callable[[str], None]) -> list[Check]:
    """All checks, in the order in which things build on each other."""
    if settings["warehouse"]:
        return _of_cluster(settings, spark=spark, say=say)
    folder = folder_of(settings["lake"])
    place = [_folder(folder), _space(folder), *_store(settings, folder)]
    if is_ducklake(settings["lake"]):
        return [_python(), *place, *_with_engine("duckdb and ducklake", settings, folder, say)]
    checks = [
        _python(),
        _tried("java", embedded.check_java),
        _tried("packages", embedded.check_packages),
        _jars(settings),
        *place,
        _drivers(location_of(folder), ()),
    ]
    if spark:
        checks += _with_engine("spark and delta", settings, folder, say)
    return checks


def _of_cluster(settings: Settings, *, spark: bool, say: Callable[[str], None]) -> list[Check]:
    """Where Spark has a configuration of its own, there is no folder and nothing to download."""
    place = settings["warehouse"]
    checks = [_python(), _tried("java", embedded.check_java), *_store(settings, None)]
    if not spark:
        return [*checks, _drivers(place, one_driver_at(place, lambda _key: None))]
    try:
        with connect_unchecked(settings=settings, say=say) as tables:
            found = f"Spark {tables.spark.version} on {tables.spark.sparkContext.master}"
            checks.append(Check(name="spark and delta", ok=True, detail=found))
            checks.append(_drivers(place, tables.lake.one_driver_at))
            checks += [*_on_s3(tables), _unknown(tables), _expiring(tables)]
    except DynamicTablesError as error:
        checks.append(_broken("spark and delta", error))
    return checks


def checks_table(checks: Sequence[Check]) -> RenderableType:
    rows = [[_mark(check), check.name, check.detail, check.hint or ""] for check in checks]
    return grid(["", "check", "found", "what to do"], rows)


def _mark(check: Check) -> Text:
    if not check.ok:
        return Text("✗", style="red")
    return Text("!", style="yellow") if check.hint else Text("✓", style="green")


def _tried(name: str, look: Callable[[], str]) -> Check:
    """A check that is an error of ours when it fails."""
    try:
        return Check(name=name, ok=True, detail=look())
    except DynamicTablesError as error:
        return _broken(name, error)


def _broken(name: str, error: DynamicTablesError) -> Check:
    about = f"{error.about}: " if error.about else ""
    return Check(name=name, ok=False, detail=f"{about}{error.message}", hint=error.hint)


# The machine.


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    needed = ".".join(map(str, MINIMUM_PYTHON))
    return Check(
        name="python",
        ok=sys.version_info >= MINIMUM_PYTHON,
        detail=f"Python {found} ({sys.executable})",
        hint=None if sys.version_info >= MINIMUM_PYTHON else f"install Python {needed} or later",
    )


def _jars(settings: Settings) -> Check:
    found, folder = jars.cached_jars(settings), jars.jar_folder(settings)
    return Check(
        name="delta jars",
        ok=True,
        detail=f"{len(found)} in {folder}" if found else f"none in {folder} yet",
        hint=None if found else "the first start downloads them from Maven Central",
    )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def _folder(folder: Path) -> Check:
    place = _existing(folder)
    usable = place.is_dir() and os.access(place, os.R_OK | os.W_OK | os.X_OK)
    made = "" if place == folder else ", made on first use"
    return Check(
        name="lake folder",
        ok=usable,
        detail=f"{folder}{made}" if usable else f"{place} cannot be written",
        hint=None if usable else "choose another folder with --lake, or ask for access",
    )


def _space(folder: Path) -> Check:
    free = shutil.disk_usage(_existing(folder)).free
    hint = None if free >= GIGABYTE else "less than a gigabyte is left: make room"
    return Check(
        name="disk space", ok=free >= NEEDED_BYTES, detail=f"{free / GIGABYTE:.1f} GB", hint=hint
    )


def _drivers(place: str, alone_at: tuple[str, ...]) -> Check:
    """Whether several workers may write there."""
    one_driver = place.startswith(alone_at)
    if local_path(place) is not None:
        detail = (
            "is a local disk: Delta excludes writers of one JVM only; refreshes of several "
            "processes exclude each other by a lock of ours, other programs do not know it"
        )
    elif one_driver:
        detail = f"is S3: {ONE_DRIVER}"
    else:
        detail = "excludes writers from each other"
    return Check(
        name="other writers",
        ok=True,
        detail=f"{place} {detail}",
        hint=TWO_DRIVERS if one_driver else None,
    )


def _on_s3(tables: DynamicTables) -> Iterator[Check]:
    """A schema may lie elsewhere than the lake."""
    alone_at = tables.lake.one_driver_at
    places = {str(state.definition.name): state.definition.location for state in tables.list()}
    there = ", ".join(name for name, place in places.items() if place.startswith(alone_at))
    if there and "" not in alone_at:
        detail = f"{there}: {ONE_DRIVER}"
        yield Check(name="tables on S3", ok=True, detail=detail, hint=TWO_DRIVERS)


# The store.


def _store(settings: Settings, folder: Path | None) -> Iterator[Check]:
    """The store of the settings, or the file in the folder of an embedded lake."""
    file = folder / STORE_FILE if folder is not None else None
    if not settings["store"] and file is not None and not file.exists():
        yield Check(name="store", ok=True, detail=f"{file}, made on first use")
        return
    try:
        if file is None:
            check_store(settings, f"warehouse={settings['warehouse']}")
        with open_store(settings["store"] or file or "") as store:
            states = store.tables()
            yield Check(
                name="store",
                ok=True,
                detail=f"{store.url}, schema version {len(MIGRATIONS)}, {len(states)} tables",
            )
            yield _server(store.server())
            yield _unfinished(store, states)
            yield _suspended(states)
            yield _unconsumed(states)
            yield _contracts(states, len(store.workers()))
    except DynamicTablesError as error:
        yield _broken("store", error)
        if settings["store"]:
            with suppress(DynamicTablesError):  # it does not answer at all, which is told already
                yield _server(look_at_server(settings["store"]))


def _server(found: Server) -> Check:
    missing = ", ".join(found.missing)
    hint = f"GRANT {missing}" if missing else None
    if found.too_old:
        hint = (
            f"PostgreSQL {OLDEST_POSTGRESQL[0]} or later is needed: upgrade it, or name another "
            "server by --store or DYNAMIC_TABLES_STORE"
        )
    return Check(
        name="database",
        ok=not found.too_old and not missing,
        detail=f"{found.name}, {f'without {missing}' if missing else 'with all rights it needs'}",
        hint=hint,
    )


def _unfinished(store: Store, states: Sequence[TableState]) -> Check:
    """Work that a dead process left; the next refresh completes it."""
    names = {state.definition.table_id: str(state.definition.name) for state in states}
    open_ = {name for key, name in names.items() if store.intent(key) is not None}
    now = store.now()  # by which claims expire
    left = {names.get(claim.table_id, "?") for claim in store.claims() if _is_left(claim, now)}
    unfinished = ", ".join(sorted(open_ | left))
    return Check(
        name="unfinished refreshes",
        ok=True,
        detail=unfinished or "none",
        hint="dynamic-tables refresh completes them" if unfinished else None,
    )


def _is_left(claim: Claim, now: datetime) -> bool:
    return claim.expires_at < now or is_dead(claim.host, claim.pid)


def _suspended(states: Sequence[TableState]) -> Check:
    found = [
        f"{state.definition.name} ({state.suspended_because or 'by hand'})"
        for state in states
        if state.status is Status.SUSPENDED
    ]
    return Check(
        name="suspended tables",
        ok=True,
        detail=", ".join(found) or "none",
        hint="dynamic-tables resume NAME" if found else None,
    )


def _unconsumed(states: Sequence[TableState]) -> Check:
    graph = Graph(state.definition for state in states)
    idle = ", ".join(str(graph[key].name) for key in unconsumed(graph))
    return Check(
        name="DOWNSTREAM without readers",
        ok=True,
        detail=idle or "none",
        hint="TARGET_LAG = DOWNSTREAM waits for readers with a TARGET_LAG of their own"
        if idle
        else None,
    )


def _contracts(states: Sequence[TableState], workers: int) -> Check:
    """Somebody has to be there to keep them."""
    options = [state.definition.options for state in states]
    count = sum(each.target_lag is not None or each.trigger_on_change for each in options)
    is_kept = not count or workers > 0
    who = "; nobody runs" if not is_kept else f", {workers} at work" if workers else ""
    return Check(
        name="tables with a contract",
        ok=True,
        detail=f"{count or 'none'}{who}",
        hint=None if is_kept else "dynamic-tables run keeps TARGET_LAG and TRIGGER ON CHANGE",
    )


# The engine.


def _with_engine(
    name: str, settings: Settings, folder: Path, say: Callable[[str], None]
) -> Iterator[Check]:
    works = _tried(name, lambda: _probe(settings, say))
    yield works
    if works.ok and (folder / STORE_FILE).exists():
        try:
            with connect_unchecked(settings=settings, say=say) as tables:
                yield from _on_s3(tables)
                yield _unknown(tables)
                yield _expiring(tables)
        except DynamicTablesError as error:
            yield _broken("tables", error)


def _probe(settings: Settings, say: Callable[[str], None]) -> str:
    """Write and read a table in a lake of its own."""
    small = is_ducklake(settings["lake"])
    with tempfile.TemporaryDirectory(prefix="dynamic-tables-doctor-") as folder:
        apart = replace(settings, values={**settings.values, "store": ""})
        place = f"{DUCKLAKE}{folder}" if small else folder
        with connect(place, settings=apart, say=say) as tables:
            tables.sql(f"CREATE TABLE probe (n INT){'' if small else ' USING delta'}")
            tables.sql("INSERT INTO probe VALUES (1), (2), (3)")
            found = tables.sql("SELECT count(*) FROM probe").collect()[0][0]
            assert found == PROBE_ROWS, f"{found} rows read, {PROBE_ROWS} written"
            if small:
                return "a DuckLake table was written and read"
            return f"Spark {tables.spark.version}: a Delta table was written and read"


def _unknown(tables: DynamicTables) -> Check:
    known = {state.definition.table_id for state in tables.list()}
    there = [d for d in tables.lake.stored_definitions() if d.table_id not in known]
    names = ", ".join(sorted(str(definition.name) for definition in there))
    return Check(
        name="tables unknown to the store",
        ok=not there,
        detail=names or "none",
        hint="dynamic-tables doctor --rebuild" if there else None,
    )


def _expiring(tables: DynamicTables) -> Check:
    """Sources that will soon have forgotten what a table has not read yet."""
    found = [
        f"{state.definition.name}: {warning}"
        for state in tables.list()
        for warning in _warnings(tables, state)
    ]
    return Check(
        name="history of the sources",
        ok=True,
        detail="; ".join(found) or "reaches back to every table's last refresh",
        hint="dynamic-tables refresh, or a longer delta.deletedFileRetentionDuration"
        if found
        else None,
    )


def _warnings(tables: DynamicTables, state: TableState) -> list[str]:
    try:
        return list(expiring(tables.lake, state, utc_now()))
    except DynamicTablesError as error:  # a source is gone: its table has a problem of its own
        return [error.message]
