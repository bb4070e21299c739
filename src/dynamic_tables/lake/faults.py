"""What Spark raises, told as one of our errors: object, reason and way out."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dynamic_tables.errors import DynamicTablesError, RefreshError
from dynamic_tables.lake import telling
from dynamic_tables.reasons import Reason

SPARK_FAULTS = (PySparkException, Py4JError, Py4JNetworkError, ConnectionError)

PLACE = re.compile(r"\s*SQLSTATE: \w+(; line \d+ pos \d+;?)?(\s*\(line \d+, pos \d+\))?\s*$")

# Surroundings first, then what is gone.
_CONFLICT = r"DELTA_CONCURRENT|Concurrent\w+Exception|MetadataChanged|ProtocolChanged"
_NO_MEMORY = r"OutOfMemory|OUT_OF_MEMORY|[Nn]ot? enough memory|(acquire|allocate) .{0,40}memory"
_WORDS = (
    (_CONFLICT, Reason.COMMIT_FAILED),
    (r"SparkContext was", Reason.ENGINE_FAILED),  # shut down: its jobs are told to be cancelled
    (r"SPARK_JOB_CANCELLED", Reason.INTERRUPTED),
    (_NO_MEMORY, Reason.ENGINE_FAILED),
    (r"ExecutorLostFailure|Connection (refused|reset)", Reason.ENGINE_FAILED),
    (r"No space left on device|Disk quota exceeded", Reason.DISK_FULL),
    (r"/blockmgr-|temp_shuffle_|MetadataFetchFailed", Reason.ENGINE_FAILED),  # Spark's own files
    (r"Permission denied|AccessControlException|AccessDenied", Reason.NO_PERMISSION),
    (
        r"DELTA_(VERSION_NOT_FOUND|FILE_NOT_FOUND|TRUNCATED_TR)|VersionNotFound|FILE_NOT_EXIST|FileNotF",
        Reason.HISTORY_GONE,
    ),
)


def told(error: BaseException, *, about: str) -> RefreshError:
    return telling.told(error, _WORDS, sentence=headline(error), about=about)


def is_alive(spark: SparkSession) -> bool:
    """Whether the JVM answers, and its context was not stopped."""
    try:
        context = spark.sparkContext._jsc
        return context is not None and not context.sc().isStopped()
    except SPARK_FAULTS:
        return False


def headline(error: BaseException) -> str:
    """The sentence in an error: Spark's own message without plans and stack traces.

    Places are left out too: they are those of the text that Spark got.
    """
    if isinstance(error, DynamicTablesError):
        return error.message
    return PLACE.sub("", _sentence(error))


def _sentence(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        return _root_message(error)
    if raised := _raised_in_python(str(error)):
        return raised
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if re.match(r"(Caused by: )?[\w.$]*(Exception|Error): ", line) and "[" in line:
            return line[line.index("[") :]
    for line in lines:
        if line.startswith("["):
            return line
    return lines[0] if lines else type(error).__name__


def _raised_in_python(text: str) -> str | None:
    """What ended Python in an executor: the line below the last stack."""
    _, found, stack = text.rpartition("Traceback (most recent call last):\n")
    below = (line for line in stack.splitlines() if line[:1].strip())
    return next(below, None) if found else None


def _root_message(error: Py4JJavaError) -> str:
    """The message of the innermost cause in the JVM."""
    java = error.java_exception
    while java.getCause() is not None:
        java = java.getCause()
    message = java.getMessage() or java.toString()
    return str(message).strip().splitlines()[0]


def is_feed_gone(error: BaseException) -> bool:
    """Whether a change feed does not reach back as far as it was asked for."""
    gone = r"DELTA_(MISSING_CHANGE_DATA|CHANGE_TABLE_FEED|CHANGE_DATA)"
    return re.search(gone, str(error)) is not None


def is_conflict(error: BaseException) -> bool:
    """Whether somebody else committed first, in a way that Delta does not let pass."""
    return re.search(_CONFLICT, str(error)) is not None
