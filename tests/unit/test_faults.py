"""What Spark, Java and the disk say, told as our reasons; setup errors name the repair."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from builders import definition
from py4j.protocol import Py4JNetworkError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    PySparkException,
)

import dynamic_tables as dt
from dynamic_tables.errors import RefreshError
from dynamic_tables.lake import embedded
from dynamic_tables.lake.area import SparkArea
from dynamic_tables.lake.duck.faults import told as duck_told
from dynamic_tables.lake.faults import SPARK_FAULTS, headline, told
from dynamic_tables.lake.measure import Cost, Meter
from dynamic_tables.render import Unheard, console
from dynamic_tables.settings import load_settings


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("java.io.IOException: No space left on device", "DISK_FULL"),
        ("Permission denied: /lake/x", "NO_PERMISSION"),
        ("[DELTA_VERSION_NOT_FOUND] Cannot time travel", "HISTORY_GONE"),
        ("[FAILED_READ_FILE.FILE_NOT_EXIST] gone", "HISTORY_GONE"),
        (
            "java.io.FileNotFoundException: /tmp/blockmgr-1/3a/temp_shuffle_2 (No such file)",
            "ENGINE_FAILED",  # what a cleaner took of Spark's own files is no history of a source
        ),
        ("[DELTA_CONCURRENT_APPEND] somebody", "COMMIT_FAILED"),
        ("Not enough memory to build and broadcast the table to all workers", "ENGINE_FAILED"),
        ("[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory", "ENGINE_FAILED"),
        ("Can't acquire 65536 bytes memory to build hash relation, got 0 bytes", "ENGINE_FAILED"),
        ("java.net.SocketTimeoutException: Read timed out", "ENGINE_FAILED"),
        ("java.net.UnknownHostException: storage.example.com", "ENGINE_FAILED"),
        ("java.net.NoRouteToHostException: No route to host", "ENGINE_FAILED"),
        (
            "com.amazonaws.SdkClientException: Unable to execute HTTP request",
            "ENGINE_FAILED",
        ),
        (
            "AmazonS3Exception: Slow Down (Service: Amazon S3; Status Code: 503)",
            "ENGINE_FAILED",
        ),
        (
            "org.apache.hadoop.ipc.StandbyException: Operation category READ is not supported",
            "ENGINE_FAILED",
        ),
        ("org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block", "ENGINE_FAILED"),
        ("FetchFailedException: Failed to connect to worker-3/10.0.0.3:40123", "ENGINE_FAILED"),
        (
            "org.apache.spark.SparkException: Could not execute broadcast in 300 secs",
            "ENGINE_FAILED",
        ),
        ("java.io.IOException: Input/output error", "ENGINE_FAILED"),
        ("java.io.FileNotFoundException: /lake/a (Too many open files)", "ENGINE_FAILED"),
        ("java.io.FileNotFoundException: /lake/a (Stale file handle)", "ENGINE_FAILED"),
        ("java.io.FileNotFoundException: /lake/a (Connection timed out)", "ENGINE_FAILED"),
        ("java.io.FileNotFoundException: /lake/a (No such file or directory)", "HISTORY_GONE"),
        (
            "[DELTA_MISSING_DELTA_TABLE] a is not a Delta table. SQLSTATE: 42P01",
            "ENGINE_FAILED",
        ),
        ("[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (0, 2) are not …", "HISTORY_GONE"),
        ("java.io.IOException: Broken pipe", "ENGINE_FAILED"),
        (
            "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint a (b < 1) violated",
            "QUERY_FAILED",
        ),
        ("[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated", "QUERY_FAILED"),
        ("[FAILED_READ_FILE.NO_HINT] Error while reading file a. SQLSTATE: KD001", "ENGINE_FAILED"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/mnt/a. SQLSTATE: 42K03", "ENGINE_FAILED"),
        ("SparkException: Python worker exited unexpectedly (crashed).", "ENGINE_FAILED"),
        ("java.lang.IllegalStateException: null", "ENGINE_FAILED"),  # nobody knows what it is
        ("scala.MatchError: null", "QUERY_FAILED"),  # a plan meets it again; another may not
        ("[INTERNAL_ERROR] Couldn't find a#1 in [b#2] SQLSTATE: XX000", "QUERY_FAILED"),
        (
            "[INTERNAL_ERROR_ATTRIBUTE_NOT_FOUND] Could not find a#1 … SQLSTATE: XX000",
            "QUERY_FAILED",
        ),
        ("[MISSING_ATTRIBUTES.RESOLVED_ATTRIBUTE_APPEAR] … SQLSTATE: XX000", "QUERY_FAILED"),
        ("[PLAN_VALIDATION_FAILED_RULE_IN_BATCH] … SQLSTATE: XXKD0", "QUERY_FAILED"),
        ("java.lang.StackOverflowError", "QUERY_FAILED"),
        ("java.lang.ClassCastException: class a cannot be cast to class b", "QUERY_FAILED"),
        ("java.lang.ClassCastException: cannot assign instance of a to b", "ENGINE_FAILED"),
        ("java.lang.UnsupportedOperationException: Byte-buffer read unsupported", "ENGINE_FAILED"),
        ("[INTERNAL_ERROR_NETWORK] no reply SQLSTATE: XX000", "ENGINE_FAILED"),
        ("[INTERNAL_ERROR_STORAGE] no space SQLSTATE: XX000", "ENGINE_FAILED"),
        (
            "[DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION] … 0AKDC",
            "HISTORY_GONE",
        ),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", "QUERY_FAILED"),
        ("[CAST_INVALID_INPUT] The value 'x' … SQLSTATE: 22018\n== SQL ==\n…", "QUERY_FAILED"),
        ("[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row. SQLSTATE: 21000", "QUERY_FAILED"),
        ("[USER_RAISED_EXCEPTION] no such day SQLSTATE: P0001", "QUERY_FAILED"),
        ("[FAILED_EXECUTE_UDF] User defined function failed. SQLSTATE: 39000", "QUERY_FAILED"),
        ("[DUPLICATED_MAP_KEY] Duplicate map key 1 was found. SQLSTATE: 23505", "QUERY_FAILED"),
        ("[UNRESOLVED_COLUMN] a cannot be resolved. SQLSTATE: 42703; line 1 pos 7", "QUERY_FAILED"),
        ("Lost task 0.0 (TID 1): java.lang.ArithmeticException: long overflow", "QUERY_FAILED"),
        (
            "Job aborted due to stage failure: [DIVIDE_BY_ZERO] … SQLSTATE: 22012\n\tat a.b",
            "QUERY_FAILED",
        ),
        (
            "org.apache.spark.api.python.PythonException: An exception was thrown: Traceback …",
            "QUERY_FAILED",
        ),
    ],
)
def test_messages_become_reasons(message: str, reason: str) -> None:
    error = told(RuntimeError(message), about="sales.orders")
    assert error.reason == reason
    assert error.about == "sales.orders"
    assert error.hint


class Known(PySparkException):
    """As PySpark has exceptions of the JVM: a cause, and a state that its text may not have."""

    def __init__(self, text: str, state: str | None, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._state, self._cause = state, cause

    def getSqlState(self) -> str | None:  # noqa: N802  PySpark's name
        if self._state == "gone":
            raise Py4JNetworkError("Answer from Java side is empty")
        return self._state


class Unanalyzed(AnalysisException):
    """What a catalog's service raised while Spark asked it."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"org.apache.hadoop.hive.ql.metadata.HiveException: {cause}")
        self._cause = RuntimeError(cause)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Known("An exception was thrown", "38000"), "QUERY_FAILED"),
        (Known("Task failed while writing rows.", "58030", Known("", "22012")), "QUERY_FAILED"),
        (Known("Job aborted.", None, RuntimeError("a. SQLSTATE: 22012")), "QUERY_FAILED"),
        (Known("Job aborted.", None, RuntimeError("No space left on device")), "DISK_FULL"),
        (Known("Task failed while writing rows.", "58030"), "ENGINE_FAILED"),
        (Known("Job aborted.", "gone", Known("", "gone")), "ENGINE_FAILED"),
        (ArithmeticException("long overflow"), "QUERY_FAILED"),
        (DateTimeException("Invalid value for MonthOfYear"), "QUERY_FAILED"),
        (AnalysisException("one of the old conditions without a state"), "QUERY_FAILED"),
        (Unanalyzed("TTransportException: Broken pipe"), "ENGINE_FAILED"),
    ],
)
def test_what_spark_itself_knows_decides(error: Exception, reason: str) -> None:
    assert told(error, about="sales.orders").reason == reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            duckdb.IOException("IO Error: Could not read from file: Input/output error"),
            "ENGINE_FAILED",
        ),
        (duckdb.HTTPException("HTTP Error: Timeout was reached"), "ENGINE_FAILED"),
        (duckdb.ConnectionException("Connection Error: closed"), "ENGINE_FAILED"),
        (
            duckdb.TransactionException("TransactionContext Error: Failed to commit"),
            "ENGINE_FAILED",
        ),
        (duckdb.InternalException("INTERNAL Error: …"), "ENGINE_FAILED"),
        (duckdb.Error("Invalid Error: Connection timed out"), "ENGINE_FAILED"),
        (duckdb.ConversionException("Conversion Error: …"), "QUERY_FAILED"),
        (duckdb.OutOfRangeException("Out of Range Error: …"), "QUERY_FAILED"),
        (duckdb.InvalidInputException("Invalid Input Error: no"), "QUERY_FAILED"),
        (duckdb.BinderException("Binder Error: …"), "QUERY_FAILED"),
        (duckdb.CatalogException("Catalog Error: …"), "QUERY_FAILED"),
        (duckdb.ParserException("Parser Error: …"), "QUERY_FAILED"),
        (duckdb.ConstraintException("Constraint Error: …"), "QUERY_FAILED"),
        (duckdb.NotImplementedException("Not implemented Error: …"), "QUERY_FAILED"),
    ],
)
def test_the_kind_of_duckdbs_exception_decides(error: Exception, reason: str) -> None:
    assert duck_told(error, about="sales.orders").reason == reason


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (Unanalyzed("TTransportException: Broken pipe"), Unanalyzed),
        (AnalysisException("a column is missing"), RefreshError),
    ],
)
def test_a_catalog_that_does_not_answer_is_no_changed_schema(
    error: Exception, raised: type[Exception]
) -> None:
    def frame(*_: object) -> None:
        raise error

    reads: Any = SimpleNamespace(
        read_definition=lambda *_: None,
        remaining_columns=lambda *_: {},
        pinned=lambda *_, **__: SimpleNamespace(frame=frame),
    )
    area: Any = SimpleNamespace(_lake=reads, _session=None)
    with pytest.raises(raised):
        SparkArea.compute(area, definition("totals"), (), instant=datetime.now(UTC))


def test_a_jvm_that_dies_after_the_commit_fails_nothing() -> None:
    """Neither what a refresh cost nor the marks of its jobs is worth a failure of what stands."""

    def dead(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    meter: Any = SimpleNamespace(start=lambda: None, stop=dead, _cost=dead)
    area: Any = SimpleNamespace(_meter=meter, _holder=SimpleNamespace(release=dead))
    with SparkArea.open(area):
        assert Meter.cost(meter) == Cost()
    with pytest.raises(ValueError, match="of the work"), SparkArea.open(area):
        raise ValueError("of the work")


def test_the_headline_is_sparks_sentence_without_the_stack() -> None:
    text = "Job aborted.\nCaused by: some.X: y\n[DIVIDE_BY_ZERO] Division by zero.\n  at a.b"
    assert headline(RuntimeError(text)) == "[DIVIDE_BY_ZERO] Division by zero."


def test_the_headline_of_what_python_raised_in_an_executor() -> None:
    stack = 'Traceback (most recent call last):\n  File "x.py", line 5, in f\n    raise X(\n'
    text = "An exception was thrown from the Python worker:\n" + stack
    text += f"KeyError: 1\n\nDuring handling of it:\n\n{stack}OSError: ACCESS_DENIED\nmore"
    assert headline(RuntimeError(text)) == "OSError: ACCESS_DENIED"


def test_java_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(dt.SetupError) as caught:
        embedded.check_java()
    assert caught.value.reason is dt.Reason.JAVA_MISSING
    assert "openjdk-17" in (caught.value.hint or "")


def test_java_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(dt.SetupError) as caught:
        embedded.check_java()
    assert "Java 8 is too old" in str(caught.value)


def test_packages_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(embedded.TESTED, "pyspark", "9.9")
    with pytest.raises(dt.SetupError) as caught:
        embedded.check_packages()
    assert caught.value.reason is dt.Reason.VERSION_UNTESTED
    assert "pip install" in (caught.value.hint or "")


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(dt.SetupError) as caught:
        dt.connect(tmp_path / "file" / "lake")
    assert caught.value.reason is dt.Reason.NO_PERMISSION
    assert str(tmp_path / "file" / "lake") in str(caught.value)


def test_settings_have_origins(tmp_path: Path) -> None:
    (tmp_path / "dynamic-tables.toml").write_text('lake = "./from-file"\nthreads = 2\n')
    settings = load_settings(
        {"memory": "4g"}, environment={"DYNAMIC_TABLES_THREADS": "8"}, folder=tmp_path
    )
    assert (settings["lake"], settings["threads"], settings["memory"]) == ("./from-file", 8, "4g")
    assert settings.origins["threads"] == "DYNAMIC_TABLES_THREADS"
    never = load_settings({"compact_files": "0"}, environment={}, folder=tmp_path)
    assert never["compact_files"] == 0
    for bad in (
        {"nonsense": "1"},
        {"threads": "0"},
        {"compact_files": "-1"},
        {"jvm": "fast"},
        {"memory": "lots"},
        {"history_days": "1"},
    ):
        with pytest.raises(dt.SetupError) as caught:
            load_settings(bad, environment={}, folder=tmp_path)
        assert caught.value.reason is dt.Reason.BAD_SETTING


def test_the_package_imports_without_pyspark() -> None:
    """A cluster brings its own Spark; help and settings must not need any."""
    code = "import sys; sys.modules['pyspark'] = None; import dynamic_tables, dynamic_tables.cli"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_executors_on_other_machines_get_copies_of_the_jars(tmp_path: Path) -> None:
    """Those on this machine read them where they lie."""
    found = ["/here/a.jar", "/here/b.jar"]

    def delta(master: str) -> dict[str, str]:
        settings = load_settings({"master": master}, environment={}, folder=tmp_path)
        return embedded._delta(settings, found)

    assert delta("spark://host:7077")["spark.jars"] == "/here/a.jar,/here/b.jar"
    assert "spark.executor.extraClassPath" not in delta("spark://host:7077")
    for master in ("local[2]", "local-cluster[2,1,1024]"):
        assert delta(master)["spark.executor.extraClassPath"] == "/here/a.jar:/here/b.jar"


class Broken(StringIO):
    def flush(self) -> None:
        raise BrokenPipeError


def test_a_reader_that_is_gone_is_no_fault_of_the_engine() -> None:
    """`worker | head`: a broken connection is one of Spark's faults, if it is its own."""
    with pytest.raises(Unheard) as caught:
        console(Broken()).print("a line")
    assert not isinstance(caught.value, SPARK_FAULTS)
