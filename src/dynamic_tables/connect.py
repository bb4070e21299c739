"""`connect`: an embedded lake in a folder, or the user's own Spark session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_tables.app import DynamicTables
from dynamic_tables.errors import SetupError
from dynamic_tables.keeper import CatalogKeeper
from dynamic_tables.lake import embedded
from dynamic_tables.lake.duck.opening import (
    CATALOG_FILE,
    check_duckdb,
    close_instance,
    open_instance,
)
from dynamic_tables.lake.places import location_of
from dynamic_tables.model import utc_now
from dynamic_tables.reasons import Reason
from dynamic_tables.settings import Settings, load_settings
from dynamic_tables.store import Store, open_store, store_is_there

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dynamic_tables.lake.delta import SparkLake

STORE_FILE = "dynamic_tables.db"
WAREHOUSE = "warehouse"
LOG_FILE = Path("logs") / "spark.log"
DUCKLAKE = "ducklake:"  # before the folder of a lake without Spark


def connect(
    lake: str | Path | None = None,
    *,
    spark: SparkSession | None = None,
    warehouse: str | None = None,
    store: str | None = None,
    clock: Callable[[], datetime] = utc_now,
    say: Callable[[str], None] | None = None,
    settings: Settings | None = None,
    rebuild: bool = False,
    **flags: Any,
) -> DynamicTables:
    """Open the dynamic tables of a lake.

    `connect("./lake")` starts an embedded Spark and keeps tables and metadata in the folder.
    `connect("ducklake:./lake")` does the same on DuckDB and DuckLake, in one process and without
    Spark; queries are DuckDB's SQL.
    `connect(spark=spark, store="postgresql://…")` works on the user's session and changes none of
    its settings.
    `connect(warehouse="s3a://bucket/lake", store="postgresql://…")` starts Spark as its own
    configuration says (`spark-defaults.conf`, PYSPARK_SUBMIT_ARGS).
    `rebuild=True` makes a store that was lost anew from what lies in the lake.
    """
    settings = settings or load_settings({**flags, "store": store, "warehouse": warehouse})
    opened = connect_unchecked(lake, spark=spark, clock=clock, say=say, settings=settings)
    try:
        if rebuild:
            opened.rebuild()
        elif spark is None:  # of a session of the user's, we would have to search the catalog
            _check_not_lost(opened)
        opened.begin()
    except BaseException:  # what was opened must not outlive the attempt
        opened.close()
        raise
    return opened


def connect_unchecked(
    lake: str | Path | None = None,
    *,
    spark: SparkSession | None = None,
    clock: Callable[[], datetime] = utc_now,
    say: Callable[[str], None] | None = None,
    settings: Settings,
) -> DynamicTables:
    """Open a lake whose store may have been lost."""
    speak = say or _to_stderr
    _check_one_place(lake, spark, settings)
    if spark is not None:
        return _on_session(spark, settings, clock=clock, say=speak)
    if lake is None and settings["warehouse"]:
        return _on_cluster(settings, clock=clock, say=speak)
    place = str(lake if lake is not None else settings["lake"])
    folder = folder_of(place)
    _check_folder(place.removeprefix(DUCKLAKE))
    if settings["store"] and not is_lake(folder):
        _check_no_others(folder, settings["store"])
    if is_ducklake(place):
        return _small(folder, settings, clock=clock, say=speak)
    return _embedded(folder, settings, clock=clock, say=speak)


def _check_not_lost(tables: DynamicTables) -> None:
    """Nobody shall take a lake whose store was lost for one without tables."""
    if tables.store.tables():
        return
    names = sorted(str(definition.name) for definition in tables.lake.stored_definitions())
    if names:
        raise SetupError(
            f"the store knows no table, but the lake has some: {', '.join(names)}",
            reason=Reason.STORE_MISSING,
            about=tables.store.url,
            hint="`dynamic-tables doctor --rebuild`, or connect(…, rebuild=True), makes the store "
            "anew from the lake (drop then what should not be there)",
        )


def is_ducklake(place: str) -> bool:
    return place.startswith(DUCKLAKE)


def folder_of(place: str) -> Path:
    """The folder that a lake lies in, whatever its kind.

    >>> folder_of("ducklake:/data/lake").as_posix()
    '/data/lake'
    """
    return Path(place.removeprefix(DUCKLAKE)).expanduser().absolute()


def is_lake(folder: Path) -> bool:
    """Whether something was stored here, whatever became of the store."""
    return (folder / WAREHOUSE).is_dir() or (folder / CATALOG_FILE).is_file()


def _check_one_place(lake: str | Path | None, spark: object, settings: Settings) -> None:
    """A folder, a session and a warehouse are three ways to name a lake.

    A folder in an argument beats a warehouse of the environment or the configuration file.
    """
    named = settings.origins["warehouse"] == "flag"
    folder = lake if lake is not None else settings["lake"]
    if lake is not None and spark is not None:
        raise SetupError(
            "a folder and a session exclude each other",
            reason=Reason.CONTRADICTION,
            about="connect",
            hint="connect(spark=spark, warehouse=…, store=…)",
        )
    if named and spark is None and (lake is not None or settings.origins["lake"] == "flag"):
        raise SetupError(
            f"the lake {folder} keeps its warehouse in its own folder",
            reason=Reason.CONTRADICTION,
            about=f"warehouse={settings['warehouse']}",
            hint="give one of them: the folder of an embedded lake, or the warehouse of a cluster",
        )


def _check_folder(folder: str) -> None:
    if "://" in folder:
        raise SetupError(
            "an embedded lake is a local folder",
            reason=Reason.BAD_SETTING,
            about=folder,
            hint=f'connect("./lake"), or on a cluster connect(warehouse="{folder}", store=…)',
        )


def _to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")


def _on_session(
    spark: SparkSession,
    settings: Settings,
    *,
    clock: Callable[[], datetime],
    say: Callable[[str], None],
) -> DynamicTables:
    check_store(settings, "connect(spark=…)")
    lake, store = _cluster_lake(spark, settings)
    return DynamicTables(lake, store, settings, clock=clock, say=say)


def check_store(settings: Settings, about: str) -> None:
    """A cluster has no folder in which a store could lie."""
    if not settings["store"]:
        raise SetupError(
            "a store is needed: the place for definitions and history",
            reason=Reason.STORE_MISSING,
            about=about,
            hint='name one: store="postgresql://…" or store="sqlite:///tables.db";'
            " on the command line --store",
        )


def _cluster_lake(spark: SparkSession, settings: Settings) -> tuple[SparkLake, Store]:
    from dynamic_tables.lake.delta import SparkLake  # noqa: PLC0415  pyspark is an extra
    from dynamic_tables.lake.supported import tested_session  # noqa: PLC0415

    tested_session(spark, embedded.TESTED)
    store = open_store(settings["store"], history_days=settings["history_days"])
    lake = SparkLake(
        spark,
        warehouse=settings["warehouse"] or None,
        allowed_roots=settings.allowed_roots,
        lock_wait_s=settings["lock_wait_s"],
    )
    return lake, store


def _on_cluster(
    settings: Settings,
    *,
    clock: Callable[[], datetime],
    say: Callable[[str], None],
) -> DynamicTables:
    """On a Spark that its own configuration describes; this process started it.

    A catalog that forgets is carried along by the store, as that of an embedded lake is.
    """
    check_store(settings, f"warehouse={settings['warehouse']}")
    session = embedded.cluster_session(settings, settings["warehouse"])
    lake, store = _cluster_lake(session, settings)
    keeper = CatalogKeeper(lake, store, None, say) if embedded.forgets_names(session) else None
    if keeper is not None:
        keeper.restore()
    return DynamicTables(
        lake,
        store,
        settings,
        clock=clock,
        say=say,
        keeper=keeper,
    )


def _embedded(
    folder: Path,
    settings: Settings,
    *,
    clock: Callable[[], datetime],
    say: Callable[[str], None],
) -> DynamicTables:
    embedded.check_startable()
    _make_folder(folder / WAREHOUSE, about=folder)
    context = embedded.start(settings, log_file=folder / LOG_FILE, say=say)
    opened = open_store(
        settings["store"] or folder / STORE_FILE, history_days=settings["history_days"]
    )
    session = embedded.new_session(context, location_of(folder / WAREHOUSE))

    from dynamic_tables.lake.delta import SparkLake  # noqa: PLC0415  pyspark is an extra
    from dynamic_tables.lake.supported import tested_session  # noqa: PLC0415

    tested_session(session, embedded.TESTED)
    delta = SparkLake(
        session,
        warehouse=location_of(folder / WAREHOUSE),
        allowed_roots=settings.allowed_roots,
        lock_wait_s=settings["lock_wait_s"],
    )
    keeper = CatalogKeeper(delta, opened, folder / WAREHOUSE, say)
    keeper.restore()
    return DynamicTables(delta, opened, settings, clock=clock, say=say, keeper=keeper)


def _check_no_others(folder: Path, place: str) -> None:
    """The store of a lake has its catalog: in another folder, statements would change that lake."""
    if not store_is_there(place):
        return
    with open_store(place) as store:
        names = [str(state.definition.name) for state in store.tables()]
        names += [".".join(item.name) for item in store.registry_all()]
    if names:
        raise SetupError(
            f"there is no lake here, and the store has the tables of another one: {names[0]} …",
            reason=Reason.STORE_MISSING,
            about=str(folder),
            hint="--lake names the other folder; a new lake needs a store of its own",
        )


def _make_folder(place: Path, *, about: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the folder cannot be made or used: {error.strerror}",
            reason=Reason.NO_PERMISSION,
            about=str(about),
            hint="choose another folder: connect('./lake'), or --lake",
        ) from error


def _small(
    folder: Path,
    settings: Settings,
    *,
    clock: Callable[[], datetime],
    say: Callable[[str], None],
) -> DynamicTables:
    check_duckdb()
    _make_folder(folder, about=folder)
    instance = open_instance(folder)
    try:
        from dynamic_tables.lake.duck.lake import DuckLake  # noqa: PLC0415  duckdb is an extra

        opened = open_store(
            settings["store"] or folder / STORE_FILE, history_days=settings["history_days"]
        )
        lake = DuckLake(instance, lock_wait_s=settings["lock_wait_s"])
    except BaseException:  # the lock on the lake must not outlive the attempt
        close_instance(instance)
        raise
    return DynamicTables(lake, opened, settings, clock=clock, say=say)
