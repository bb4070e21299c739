"""What Spark raises, told as one of our errors: object, reason and way out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    PySparkException,
)
from pyspark.sql import SparkSession

from dynamic_tables.errors import DynamicTablesError, RefreshError
from dynamic_tables.lake import telling
from dynamic_tables.reasons import Reason

SPARK_FAULTS = (PySparkException, Py4JError, Py4JNetworkError, ConnectionError)

PLACE = re.compile(r"\s*SQLSTATE: \w+(; line \d+ pos \d+;?)?(\s*\(line \d+, pos \d+\))?\s*$")

# Surroundings first, then what is gone.
_CONFLICT = r"DELTA_CONCURRENT|Concurrent\w+Exception|MetadataChanged|ProtocolChanged"
_NO_MEMORY = r"OutOfMemory|OUT_OF_MEMORY|[Nn]ot? enough memory|(acquire|allocate) .{0,40}memory"
_UNREADABLE = (  # Java says of every file that does not open that it was not found, and why
    r"Too many open files|Stale file handle|Input/output error|Transport endpoint"
    r"|\((Connection timed out|Resource temporarily unavailable|Host is down|No route to host)"
)
_UNMOUNTED = r"DELTA_(MISSING_DELTA_TABLE|TABLE_NOT_FOUND|TABLE_ONLY_OPERATION)"  # was there before
_GONE = (
    r"DELTA_(VERSION_NOT_FOUND|FILE_NOT_FOUND|TRUNCATED_TR|UNSUPPORTED_TIME_TRAVEL_BEYOND)"
    r"|DELTA_(VERSIONS_NOT_CONTIGUOUS|LOG_FILE_NOT_FOUND)"
    r"|VersionNotFound|FILE_NOT_EXIST|FileNotF"
)
_WORDS = (
    (_CONFLICT, Reason.COMMIT_FAILED),
    (r"SparkContext was", Reason.ENGINE_FAILED),  # shut down: its jobs are told to be cancelled
    (r"SPARK_JOB_CANCELLED", Reason.INTERRUPTED),
    (_NO_MEMORY, Reason.ENGINE_FAILED),
    (r"ExecutorLostFailure|Connection (refused|reset)", Reason.ENGINE_FAILED),
    (r"No space left on device|Disk quota exceeded", Reason.DISK_FULL),
    (r"/blockmgr-|temp_shuffle_|MetadataFetchFailed", Reason.ENGINE_FAILED),  # Spark's own files
    (r"Permission denied|AccessControlException|AccessDenied", Reason.NO_PERMISSION),
    (_UNREADABLE, Reason.ENGINE_FAILED),
    (_UNMOUNTED, Reason.ENGINE_FAILED),
    (_GONE, Reason.HISTORY_GONE),
)

# A query's SQLSTATEs: 0A unsupported, 21 cardinality, 22 data, 23 constraint, 38 and 39 functions,
# 42 analysis, 54 limits, P0 raised by the query itself. Not those of a path that is not there, or
# there already (42K03, 42K04), or of a Delta log that cannot be made or read (42KD5, 42KD6).
_QUERYS_STATE = re.compile(r"0A|2[123]|3[89]|42(?!K0[34]|KD[56])|54|P0")
_STATE = re.compile(r"SQLSTATE: (\w{5})")
# What some functions raise without a state, what Python functions raise, and rows that a
# constraint of the table refuses.
_QUERYS_CLASS = re.compile(
    r"java\.lang\.ArithmeticException|java\.time\.[\w.]*DateTime\w*Exception|PythonException: "
    r"|InvariantViolationException|DELTA_(VIOLATE_CONSTRAINT|NOT_NULL_CONSTRAINT)"
)
# Defects of Spark that a plan meets, every time; another plan of the same query may not. There are
# also internal errors of networks, storages and memories: those pass.
_DEFECT = re.compile(
    r"\[(INTERNAL_ERROR(_ATTRIBUTE_NOT_FOUND)?|MISSING_ATTRIBUTES\.\w+|PLAN_VALIDATION_FAILED\w*)\]"
    r"|scala\.MatchError|java\.lang\.StackOverflowError"
    r"|java\.lang\.ClassCastException(?!: cannot assign instance)"  # an executor has other jars
)


def told(error: BaseException, *, about: str) -> RefreshError:
    links = tuple(_chain(error))
    text = "\n".join(str(link) for link in links)
    querys = any(_is_querys(link) for link in links)
    otherwise = Reason.QUERY_FAILED if querys else Reason.ENGINE_FAILED
    return telling.told(text, _WORDS, otherwise, sentence=headline(error), about=about)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes in the JVM: PySpark's texts are without them."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = getattr(link, "_cause", None)


def _is_querys(error: BaseException) -> bool:
    """Whether Spark says that a query or its data failed: it would fail again on the same data.

    What it says nothing about may pass, and is tried again: networks have no end of words.
    """
    state, text = _state(error), str(error)
    if _DEFECT.search(text):
        return True
    if state is not None:
        return _QUERYS_STATE.match(state) is not None
    if isinstance(error, AnalysisException) and getattr(error, "_cause", None) is None:
        return True  # one of the old conditions; else a catalog's service may have failed
    told = any(_QUERYS_STATE.match(found) for found in _STATE.findall(text))
    of_values = isinstance(error, (ArithmeticException, DateTimeException))
    return told or of_values or bool(_QUERYS_CLASS.search(text))


def _state(error: BaseException) -> str | None:
    try:
        return error.getSqlState() if isinstance(error, PySparkException) else None
    except SPARK_FAULTS:  # the JVM is gone
        return None


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
