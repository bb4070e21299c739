"""One DuckDB per folder and process, with the folder's DuckLake attached.

A DuckLake whose catalog is a DuckDB file belongs to one process at a time. Within the process the
folder may be opened many times: all share the one instance, each on connections of its own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynamic_tables.errors import SetupError
from dynamic_tables.lake.duck.connection import Connection
from dynamic_tables.lake.duck.text import MAIN, METADATA, literal, quote
from dynamic_tables.names import SMALL_LAKE
from dynamic_tables.reasons import Reason

TESTED = "1.5.5"
INSTALL_HINT = "pip install 'spark-dynamic-tables[ducklake]'"
CATALOG_FILE = "catalog.ducklake"
FILES = "files"
_NEWEST = (
    "SELECT max(snapshot_id), arg_max(schema_version, snapshot_id), count(*) "  # noqa: S608
    f"FROM {METADATA}.ducklake_snapshot"
)

_shared: dict[Path, Instance] = {}
_shared_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Newest:
    """How far the lake is."""

    snapshot: int
    schema: int  # grows with every DDL
    snapshots: int  # how many there are

    @property
    def expired(self) -> int:
        """Differs from before if snapshots were expired meanwhile."""
        return self.snapshot - self.snapshots


@dataclass(slots=True, eq=False)
class Instance:
    """A DuckDB with the lake attached, and how many opened it."""

    folder: Path
    connection: Connection
    commit_lock: threading.RLock = field(default_factory=threading.RLock)
    users: int = 1
    _own: threading.local = field(default_factory=threading.local)  # a connection a thread
    _generation: int = 0  # grows with everything that may have committed
    _newest: tuple[int, Newest] | None = None  # as of a generation
    _newest_lock: threading.Lock = field(default_factory=threading.Lock)

    def cursor(self, schema: str = MAIN) -> Connection:
        """A connection of its own, in a schema of the lake."""
        cursor = self.connection.cursor()
        cursor.execute(f"USE {quote(SMALL_LAKE)}.{quote(schema)}")
        return cursor

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one of our queries, as the lake stands now."""
        if not hasattr(self._own, "cursor"):
            self._own.cursor = self.connection.cursor()
        return self._own.cursor.execute(statement, values).fetchall()

    def changed(self) -> None:
        """Somebody may have committed; this process is the only one that can."""
        with self._newest_lock:
            self._generation += 1

    def newest(self) -> Newest:
        """How far the lake is; asked again only after a commit."""
        known, generation = self._newest, self._generation
        if known is None or known[0] != generation:
            known = self._newest = (generation, Newest(*self.rows(_NEWEST)[0]))
        return known[1]


def open_instance(folder: Path) -> Instance:
    """The process's instance for a folder; the lake is made if there is none."""
    folder = folder.resolve()
    with _shared_lock:
        instance = _shared.get(folder)
        if instance is not None:
            instance.users += 1
            return instance
        instance = _shared[folder] = Instance(folder, _attached(folder))
        return instance


def close_instance(instance: Instance) -> None:
    """The last one out lets go of the files, so that another process may have them.

    Results that somebody still holds keep DuckDB alive, so the lake is detached by name.
    """
    with _shared_lock:
        instance.users -= 1
        if instance.users == 0:
            del _shared[instance.folder]
            instance.connection.execute(f"DETACH {quote(SMALL_LAKE)}")
            instance.connection.close()


def _attached(folder: Path) -> Connection:
    duckdb = _duckdb()
    (folder / FILES).mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect(
        config={
            "python_enable_replacements": False,  # a Python variable is no table
            "temp_directory": str(folder / "temporary"),
        }
    )
    try:
        connection.execute("LOAD ducklake")
        place = literal(f"ducklake:{folder / CATALOG_FILE}")
        options = f"DATA_PATH {literal(str(folder / FILES))}, METADATA_CATALOG {literal(METADATA)}"
        connection.execute(f"ATTACH {place} AS {quote(SMALL_LAKE)} ({options})")
    except duckdb.Error as error:
        connection.close()
        raise _not_attached(folder, error) from error
    return Connection(connection)


def check_duckdb() -> None:
    """Say what is missing before anything is made."""
    _duckdb()


def _duckdb() -> Any:
    """The module, with the extension from its wheel; nothing is downloaded."""
    try:
        import duckdb  # noqa: PLC0415  an extra
        from duckdb_extensions import import_extension  # noqa: PLC0415
    except ImportError as error:
        raise SetupError(
            "duckdb or its ducklake extension is not installed",
            reason=Reason.DUCKDB_MISSING,
            about=error.name or "duckdb",
            hint=INSTALL_HINT,
        ) from error
    if duckdb.__version__ != TESTED:
        raise SetupError(
            f"version {duckdb.__version__} is not tested; {TESTED} is",
            reason=Reason.VERSION_UNTESTED,
            about="duckdb",
            hint=INSTALL_HINT,
        )
    import_extension("ducklake")
    return duckdb


def _not_attached(folder: Path, error: Exception) -> SetupError:
    text = str(error)
    if "Conflicting lock" in text or "Could not set lock" in text:
        holder = re.search(r"PID (\d+)", text)
        who = f"process {holder.group(1)}" if holder else "another process"
        return SetupError(
            f"{who} has this lake open, and a DuckLake folder belongs to one process at a time",
            reason=Reason.HELD,
            about=str(folder),
            hint="end that process; lakes for several processes are those on Spark: connect('./…')",
        )
    return SetupError(
        f"the lake cannot be opened: {text.splitlines()[0]}",
        reason=Reason.LAKE_CHANGED,
        about=str(folder),
        hint="choose another folder, or look at what lies there",
    )
