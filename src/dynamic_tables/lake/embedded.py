"""The embedded Spark: one quiet JVM per process, one catalog per lake.

The JVM writes to a log file instead of the user's terminal. Delta's jars (`jars.py`) are named
directly once they are here, which saves Spark's package resolution at every start. Several lakes
may be open in one process: each gets a session with a catalog and a warehouse folder of its own on
the same Spark context.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dynamic_tables.errors import SetupError
from dynamic_tables.lake import jars
from dynamic_tables.lake.class_archive import ClassArchive
from dynamic_tables.lake.jars import DELTA_PACKAGE, DELTA_VERSION, Say
from dynamic_tables.reasons import Reason
from dynamic_tables.settings import Settings

MINIMUM_JAVA = 17
TESTED = {"pyspark": "4.2.0", "delta-spark": DELTA_VERSION}
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


def check_startable() -> None:
    """Say what is missing before anything is made."""
    check_packages()
    if _running() is None:
        check_java()


def start(settings: Settings, *, log_file: Path, say: Say) -> Any:
    """The process's Spark context, started on first use."""
    with _starting:
        return _running() or _launch(settings, log_file=log_file, say=say)


def _running() -> Any | None:
    from pyspark import SparkContext  # noqa: PLC0415  pyspark is an extra

    context = SparkContext._active_spark_context
    if context is not None and context.getConf().get("spark.app.name") != "dynamic-tables":
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

    if not _on_cluster(settings):  # Python in the executors (`rorder` has some): this one
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not settings["master"]:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # keeps Spark from guessing
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
        with jars.at_hand(settings, say) as found:
            conf = SparkConf(loadDefaults=False)
            for key, value in _configuration(settings, found).items():
                conf.set(key, value)
            gateway = _gateway(launch_gateway, conf, log, log_file)
        context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("WARN")
    _quieten()
    _spare_from_sigterm(context)
    atexit.register(_end, context)
    return context


def _spare_from_sigterm(context: Any) -> None:
    """A service manager sends SIGTERM to Python and JVM alike. What is under way is to end first:
    the JVM ignores it, as it does Ctrl-C, and ends when its Python has, whose pipe closes then."""
    signals = context._jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)


def _end(context: Any) -> None:
    """At the end of the process, where a JVM that died before is no news."""
    from dynamic_tables.lake.faults import SPARK_FAULTS  # noqa: PLC0415  needs pyspark

    with suppress(*SPARK_FAULTS):
        context.stop()


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
    found = jars.cached_jars(settings)
    if settings["jvm"] != "quick" or not found:
        return None
    java = " ".join(map(str, java_version()))
    class_path = [str(jars.spark_jars()), *found]
    return ClassArchive(jars.jar_folder(settings), java=java, class_path=class_path)


def _configuration(settings: Settings, found: list[str]) -> dict[str, str]:
    cores = os.cpu_count() or 2
    quick = settings["jvm"] == "quick"
    archive = class_archive(settings)
    java_options = [QUICK_JVM if quick else STEADY_JVM, archive.java_option() if archive else ""]
    return {
        **_delta(settings, found),
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
        # On a local disk nothing is gained by reading in other threads, where nobody counts bytes.
        "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
        # Every piece of a file costs at least a buffer: 100 small row groups of 64 kB were 6 MB.
        "spark.buffer.size": "8192",
        # Every broadcast takes a page, of 64 MB if Spark chooses: 30 small joins were 2 GB.
        "spark.buffer.pageSize": "4m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",  # tables of one refresh share the cores
    }


def _on_cluster(settings: Settings) -> bool:
    return bool(settings["master"]) and not settings["master"].startswith("local")


def _delta(settings: Settings, found: list[str]) -> dict[str, str]:
    """Where Delta's jars come from; executors on other machines get copies."""
    if not found:
        return {
            "spark.jars.packages": DELTA_PACKAGE,
            "spark.jars.ivy": str(jars.jar_folder(settings)),
        }
    path = {"spark.driver.extraClassPath": os.pathsep.join(found)}
    if _on_cluster(settings):
        return {**path, "spark.jars": ",".join(found)}
    return {**path, "spark.executor.extraClassPath": os.pathsep.join(found)}


def cluster_session(settings: Settings, warehouse: str) -> Any:
    """The session that `spark-defaults.conf` or PYSPARK_SUBMIT_ARGS describe.

    Credentials, jars and the catalog of a cluster are its administrators' business: nothing of it
    is set here but the place of the warehouse and, if one is named, the master.
    """
    try:
        from pyspark import SparkContext  # noqa: PLC0415  pyspark is an extra
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as error:
        raise SetupError(
            "is not installed", reason=Reason.SPARK_MISSING, about="pyspark", hint=INSTALL_HINT
        ) from error
    with _starting:
        ours = SparkContext._active_spark_context is None
        if ours:
            check_java()
        builder = SparkSession.builder.appName("dynamic-tables on a cluster")
        if settings["master"]:
            builder = builder.master(settings["master"])
        session = builder.config("spark.sql.warehouse.dir", warehouse).getOrCreate()
        if ours:
            _spare_from_sigterm(session.sparkContext)
        atexit.register(_end, session)
    return session


def forgets_names(session: Any) -> bool:
    """Whether the session's catalog lives in memory, and is empty in the next process."""
    return session.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"


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
