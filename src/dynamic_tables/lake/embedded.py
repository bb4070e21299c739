"""The embedded Spark: one quiet JVM per process, one catalog per lake.

The JVM writes to a log file instead of the user's terminal. Delta's jars are resolved once into a
cache of our own and then named directly, which saves Spark's package resolution at every later
start. Several lakes may be open in one process: each gets a session with a catalog and a warehouse
folder of its own on the same Spark context.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dynamic_tables.errors import SetupError
from dynamic_tables.lake.class_archive import ClassArchive
from dynamic_tables.reasons import Reason
from dynamic_tables.settings import Settings

MINIMUM_JAVA = 17
TESTED = {"pyspark": "4.2.0", "delta-spark": "4.4.0"}
DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
INSTALL_HINT = "pip install 'spark-dynamic-tables[local]'"
JAVA_HINT = (
    "install Java 17 or later (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
)

# Starts in two thirds of the time. Without the second compiler Java keeps 48 MB of compiled code;
# Spark's and Delta's is more after some dozen refreshes, and was then thrown away and made again.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
STEADY_JVM = "-XX:+UseParallelGC"
ON_THIS_MACHINE = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
# For refreshes of small tables: planning and generated code cost more there than they save.
SMALL_QUERIES = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.files.minPartitionNum": "1",  # small files share a task, those of the log too
}

Say = Callable[[str], None]
_starting = threading.Lock()


def java_version() -> tuple[int, str]:
    """Major version and path of the Java that Spark would use."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        raise SetupError(
            "Java was not found",
            reason=Reason.JAVA_MISSING,
            about=program or "java",
            hint=JAVA_HINT,
        )
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        raise SetupError(
            "does not say its version", reason=Reason.JAVA_MISSING, about=program, hint=JAVA_HINT
        )
    return int(match.group(1)), program


def check_java() -> str:
    major, program = java_version()
    if major < MINIMUM_JAVA:
        raise SetupError(
            f"Java {major} is too old: Spark 4 needs Java {MINIMUM_JAVA} or later",
            reason=Reason.JAVA_MISSING,
            about=program,
            hint=JAVA_HINT,
        )
    return f"Java {major} ({program})"


def check_packages() -> str:
    """pyspark and delta-spark are there, in the tested versions."""
    found = {}
    for package, wanted in TESTED.items():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            raise SetupError(
                "is not installed", reason=Reason.SPARK_MISSING, about=package, hint=INSTALL_HINT
            ) from None
        if found[package] != wanted:
            raise SetupError(
                f"version {found[package]} is not tested; {wanted} is",
                reason=Reason.VERSION_UNTESTED,
                about=package,
                hint=INSTALL_HINT,
            )
    return ", ".join(f"{package} {found[package]}" for package in found)


def jar_folder(settings: Settings) -> Path:
    """Where Delta's jars are kept between starts."""
    base = settings["jar_cache"] or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).expanduser() / "dynamic-tables" / f"delta-{TESTED['delta-spark']}"


def cached_jars(settings: Settings) -> list[str]:
    """Delta's jars if they were resolved before; the marker file is written after a good start."""
    folder = jar_folder(settings)
    if not (folder / "complete").is_file():
        return []
    present = {_library(path.name) for path in _spark_jars().glob("*.jar")}
    return [
        str(path)
        for path in sorted((folder / "jars").glob("*.jar"))
        if _library(path.name.split("_", 1)[1]) not in present  # Ivy puts the group before the name
    ]


def _spark_jars() -> Path:
    found = importlib.util.find_spec("pyspark")
    return Path(str(found.origin)).parent / "jars" if found else Path()


def _library(jar: str) -> str:
    """The name of a jar without its version."""
    return re.sub(r"-\d[\w.\-]*\.jar$", "", jar)


def start(settings: Settings, *, log_file: Path, say: Say) -> Any:
    """The process's Spark context, started on first use."""
    with _starting:
        from pyspark import SparkContext  # noqa: PLC0415  pyspark is an extra

        running = SparkContext._active_spark_context
        if running is not None:
            return _reused(running)
        check_java()
        check_packages()
        return _launch(settings, log_file=log_file, say=say)


def _reused(context: Any) -> Any:
    if context.getConf().get("spark.app.name") != "dynamic-tables":
        raise SetupError(
            "another Spark session already runs in this process",
            reason=Reason.SESSION_RUNNING,
            about=str(context.getConf().get("spark.app.name")),
            hint='pass it: dynamic_tables.connect(spark=spark, store="sqlite:///tables.db")',
        )
    return context


def _launch(settings: Settings, *, log_file: Path, say: Say) -> Any:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    jars = cached_jars(settings)
    conf = SparkConf(loadDefaults=False)
    for key, value in _configuration(settings, jars).items():
        conf.set(key, value)
    # Python workers (there are none in our own queries) must use this interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not settings["master"]:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # keeps Spark from guessing
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
        with _download_notice(settings, needed=not jars, say=say):
            gateway = _gateway(launch_gateway, conf, log, log_file)
        context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("WARN")
    _quieten()
    atexit.register(context.stop)
    if not jars:
        (jar_folder(settings) / "complete").touch()
    return context


def _quieten() -> None:
    """pyspark logs failing queries to the terminal as JSON with both stack traces; the exception
    that it raises as well is enough."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _gateway(launch_gateway: Any, conf: Any, log: Any, log_file: Path) -> Any:
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415

    try:
        return launch_gateway(conf=conf, popen_kwargs={"stdout": log, "stderr": log})
    except PySparkRuntimeError as error:
        said = log_file.read_text(encoding="utf-8", errors="replace")
        unresolved = "unresolved dependency" in said or "UNRESOLVED DEPENDENCIES" in said
        raise SetupError(
            "Delta's jar could not be downloaded" if unresolved else "Spark did not start",
            reason=Reason.DELTA_MISSING if unresolved else Reason.SPARK_MISSING,
            about=DELTA_PACKAGE if unresolved else "Spark",
            hint=f"what Spark said is in {log_file}"
            + ("; check the way to Maven Central" if unresolved else ""),
        ) from error


def class_archive(settings: Settings) -> ClassArchive | None:
    """Where a quick JVM keeps its loaded classes; the first start of all has another class path."""
    jars = cached_jars(settings)
    if settings["jvm"] != "quick" or not jars:
        return None
    java = " ".join(map(str, java_version()))
    return ClassArchive(jar_folder(settings), java=java, class_path=[str(_spark_jars()), *jars])


def _configuration(settings: Settings, jars: list[str]) -> dict[str, str]:
    cores = os.cpu_count() or 2
    quick = settings["jvm"] == "quick"
    archive = class_archive(settings)
    java_options = [QUICK_JVM if quick else STEADY_JVM, archive.java_option() if archive else ""]
    source = (
        {f"spark.{role}.extraClassPath": os.pathsep.join(jars) for role in ("driver", "executor")}
        if jars
        else {
            "spark.jars.packages": DELTA_PACKAGE,
            "spark.jars.ivy": str(jar_folder(settings)),
        }
    )
    return {
        **source,
        **(SMALL_QUERIES if quick else {}),
        "spark.app.name": "dynamic-tables",
        "spark.master": settings["master"] or f"local[{cores}]",
        "spark.driver.memory": settings["memory"],
        "spark.driver.extraJavaOptions": " ".join(java_options).strip(),
        **({} if settings["master"] else ON_THIS_MACHINE),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(cores),  # VACUUM: 10,000
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",  # tables of one refresh share the cores
    }


class _download_notice:  # noqa: N801  used like a function
    """While jars are downloaded for the first time, say so and count them."""

    INTERVAL_S = 1.0

    def __init__(self, settings: Settings, *, needed: bool, say: Say) -> None:
        self._folder = jar_folder(settings)
        self._needed = needed
        self._say = say
        self._done = threading.Event()

    def __enter__(self) -> None:
        if not self._needed:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._say(f"First start: downloading Delta Lake ({DELTA_PACKAGE}) …")
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        started, last = time.monotonic(), 0
        while not self._done.wait(self.INTERVAL_S):
            count = sum(1 for _ in self._folder.glob("cache/**/*.jar"))
            if count != last:
                last = count
                self._say(f"  {count} jars, {time.monotonic() - started:.0f} s")

    def __exit__(self, *exc: object) -> None:
        if self._needed:
            self._done.set()
            self._thread.join()


def new_session(context: Any, warehouse: str) -> Any:
    """A session with a catalog and a warehouse folder of its own."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from dynamic_tables.lake import jvm  # noqa: PLC0415

    options = context._jvm.java.util.HashMap()
    options.put("spark.sql.warehouse.dir", warehouse)
    java_session = context._jvm.org.apache.spark.sql.classic.SparkSession(
        context._jsc.sc(), options
    )
    session = SparkSession(context, jsparkSession=java_session)
    jvm.bind_catalogs(session)
    return session
