"""What Spark does not offer in Python, asked of the JVM; `snapshots` asks Delta's log likewise.

Used: Spark's parser (where does a query name its tables), the session catalog (views, temporary
objects), the status store (what did a refresh read). `try_internals` tries each of them
once at connect, so that another build of Spark is refused by name instead of failing later.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

Java = Any  # an object that lives in the JVM
Answer = TypeVar("Answer")
DELTA = "org.apache.spark.sql.delta"
VIEW = "org.apache.spark.sql.catalyst.plans.logical.View"
RECORD_SEPARATOR = "\x1e"
ROW_OVERHEAD_BYTES = 8  # as Spark counts it


def packages(spark: SparkSession) -> Any:
    """The root of the JVM's packages."""
    return spark._jvm


def java_class(spark: SparkSession, name: str) -> Java:
    """A class of the JVM, to be called as its constructor.

    As packages(spark).org.apache.… it would be asked for part by part, each time.
    """
    return JavaClass(name, packages(spark)._gateway_client)


def static(spark: SparkSession, class_name: str, method: str) -> Java:
    """A static method, or a method of a Scala object."""
    return _static(packages(spark)._gateway_client, class_name, method)


def check_signature(
    spark: SparkSession, class_name: str, method: str, parameters: Sequence[str]
) -> None:
    """Py4JError if no static method takes these: which one is meant is found out by its call."""
    load = static(spark, "py4j.reflection.ReflectionUtil", "classForName")
    wrapped = static(spark, "scala.collection.immutable.ArraySeq", "unsafeWrapArray")
    methods = wrapped(load(class_name).getMethods()).mkString(" ")
    found = re.findall(rf"[.]{re.escape(method)}[(]([^)]*)[)]", methods)
    if ",".join(parameters) not in found:
        raise Py4JError(f"{class_name}.{method} takes ({') or ('.join(found)})")


@lru_cache(maxsize=64)
def _static(client: Any, class_name: str, method: str) -> Java:
    return getattr(JavaClass(class_name, client), method)


class _Prompt:
    """A stream of answers, each piece of which is acknowledged at once."""

    def __init__(self, stream: Any, connection: socket.socket) -> None:
        self._stream, self._connection = stream, connection

    def readline(self) -> bytes:
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return self._stream.readline()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def hear_at_once(spark: SparkSession) -> None:
    """Let this thread not wait for answers of many kilobytes.

    The JVM sends a piece and waits for a word about it, which Linux holds back for 40 ms.
    """
    client = packages(spark)._gateway_client
    if not hasattr(client, "get_thread_connection"):  # PYSPARK_PIN_THREAD=false
        return
    connection = client.get_thread_connection()
    known = connection is None or isinstance(connection.stream, _Prompt)
    if not known and hasattr(socket, "TCP_QUICKACK"):
        connection.stream = _Prompt(connection.stream, connection.socket)


def scala_context(spark: SparkSession) -> Java:
    return spark._jsparkSession.sparkContext()


def items(scala_collection: Java) -> Iterator[Java]:
    """The elements of a Scala collection."""
    size, iterator = scala_collection.size(), scala_collection.iterator()
    for _ in range(size):
        yield iterator.next()


def option(scala_option: Java) -> Java | None:
    """The content of a Scala Option."""
    return scala_option.get() if scala_option.isDefined() else None


def some(spark: SparkSession, value: Java) -> Java:
    """A value as a Scala Option; None is Scala's None."""
    if value is None:
        return static(spark, "scala.Option", "empty")()
    return static(spark, "scala.Option", "apply")(value)


def sequence(spark: SparkSession, values: Sequence[Java]) -> Java:
    """A Scala Seq of objects of the JVM."""
    collected = packages(spark).java.util.ArrayList()
    for value in values:
        collected.add(value)
    return static(spark, "scala.jdk.javaapi.CollectionConverters", "asScala")(collected).toSeq()


def long_sequence(spark: SparkSession, values: Sequence[int]) -> Java:
    """A Scala Seq of numbers, in one answer: one by one, thousands would take seconds."""
    mapper = java_class(spark, "com.fasterxml.jackson.databind.ObjectMapper")()
    array = mapper.readValue(json.dumps(list(values)), _class(spark, "[J"))
    return java_class(spark, "scala.collection.immutable.ArraySeq$ofLong")(array)


def _class(spark: SparkSession, name: str) -> Java:
    return static(spark, "java.lang.Class", "forName")(name)


def java_map(spark: SparkSession, values: Mapping[str, str]) -> Java:
    found = java_class(spark, "java.util.HashMap")()
    for key, value in values.items():
        found.put(key, value)
    return found


def scala_map(spark: SparkSession, values: Java) -> Java:
    """A java.util.Map as an immutable Scala Map."""
    scala = static(spark, "scala.jdk.javaapi.CollectionConverters", "asScala")(values)
    return static(spark, "scala.collection.immutable.Map", "from")(scala)


@contextmanager
def active(spark: SparkSession) -> Generator[None]:
    """Make a session the active one of this thread: Delta's internals use that one."""
    sessions = java_class(spark, "org.apache.spark.sql.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def meanwhile(spark: SparkSession, work: Callable[[], Answer]) -> Generator[Future[Answer]]:
    """Work beside this thread, as a part of it: Spark cancels and counts both together."""

    def in_session() -> Answer:
        with active(spark):
            return work()

    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(inheritable_thread_target(spark)(in_session))


def settings(spark: SparkSession) -> dict[str, str]:
    """All settings of a session, in one answer: `spark.conf.getAll` asks for each by itself."""
    return pairs(spark._jsparkSession.conf().getAll())


def started_with(spark: SparkSession) -> Callable[[str], str]:
    """What Spark was started with, by key; empty: nothing. A session may say something else."""
    configuration = scala_context(spark).getConf()
    return lambda key: configuration.get(key, "")


def set_all(spark: SparkSession, wanted: Mapping[str, str]) -> None:
    """Settings of a session, in one answer, checked as `spark.conf.set` does."""
    mapper = java_class(spark, "com.fasterxml.jackson.databind.ObjectMapper")()
    properties = mapper.readValue(json.dumps(wanted), _class(spark, "java.util.Properties"))
    spark._jsparkSession.sessionState().conf().setConf(properties)


def view_conf(spark: SparkSession, metadata: Java) -> Java:
    """The settings under which Spark reads a view: those kept with it, else defaults, which
    depend on the Spark that made it."""
    effective = static(spark, VIEW, "effectiveSQLConf")
    return effective(metadata.viewSQLConfigs(), False, metadata.createVersion())


def pairs(scala_map: Java) -> dict[str, str]:
    """A Scala map of texts, in one answer."""
    told = scala_map.mkString(RECORD_SEPARATOR)
    found = (entry.partition(" -> ") for entry in told.split(RECORD_SEPARATOR) if entry)
    return {key: value for key, _, value in found}


def struct_type(spark: SparkSession, described: str) -> Java:
    """A schema from its JSON."""
    return static(spark, "org.apache.spark.sql.types.DataType", "fromJson")(described)


@dataclass(frozen=True, slots=True)
class Held:
    """A computed frame: in the driver as a local relation if it is small, else in the executors."""

    frame: DataFrame
    size: int
    is_local: bool
    is_sent_along: bool = False  # joins broadcast it


def collected(frame: DataFrame, *, rows_at_most: int) -> Held | None:
    """Compute a frame and bring it to the driver, in one job; None if it has more rows.

    Exact for old dates too, because private sessions use Java's own calendar types.
    """
    rows = frame.limit(rows_at_most + 1)._jdf.collectAsList()
    size = rows.size()
    return _local(frame, rows, size) if size <= rows_at_most else None


def numbers(frame: DataFrame) -> list[int]:
    """All whole numbers of a frame that has nothing else, in their order, however nested, in one
    answer: Python's own way makes an object of every row."""
    found = frame._jdf.collectAsList().toString()
    return [int(number) for number in re.findall(r"-?\d+", found)]


def counted(computed: DataFrame, *, rows_at_most: int) -> Held:
    """A frame that is computed already, in the driver if it has few rows."""
    size = computed.count()
    if size > rows_at_most:
        return Held(computed, size, is_local=False)
    return collected_all(computed)


def collected_all(frame: DataFrame) -> Held:
    """Compute a frame and bring it to the driver; somebody knows that it is small."""
    rows = frame._jdf.collectAsList()
    return _local(frame, rows, rows.size())


def held(persisted: DataFrame, *, rows_at_most: int, bytes_at_most: int) -> Held:
    """Compute a persisted frame once; counting fills its cache, which then knows its size."""
    size = persisted.count()
    cached = persisted._jdf.queryExecution().withCachedData().stats().sizeInBytes()
    if size > rows_at_most or cached > bytes_at_most:
        return Held(persisted, size, is_local=False)
    return collected_all(persisted)


def broadcast_bytes(spark: SparkSession) -> int:
    """Up to which size Spark broadcasts one side of a join; -1: never."""
    return spark._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold()


def row_bytes(frame: DataFrame) -> int:
    """What Spark takes for the size of a row."""
    return ROW_OVERHEAD_BYTES + frame._jdf.schema().defaultSize()


def computed_bytes(frame: DataFrame) -> int | None:
    """What a frame takes that was checkpointed, in memory and on disk; None for any other."""
    plan = frame._jdf.queryExecution().analyzed()
    if class_name(plan) != "LogicalRDD":
        return None
    number = plan.rdd().id()
    for info in scala_context(frame.sparkSession).getRDDStorageInfo():
        if info.id() == number:
            return info.memSize() + info.diskSize()
    return None


def _local(frame: DataFrame, rows: Java, size: int) -> Held:
    session = frame.sparkSession
    local = session._jsparkSession.createDataFrame(rows, frame._jdf.schema())
    return Held(DataFrame(local, session), size, is_local=True)


def class_name(node: Java) -> str:
    return node.getClass().getSimpleName()


def is_a(spark: SparkSession, node: Java, class_name: str) -> bool:
    return static(spark, "py4j.reflection.TypeUtil", "isInstanceOf")(class_name, node)


def is_plan(spark: SparkSession, node: Java) -> bool:
    """Whether a tree node is a logical plan (else it is an expression)."""
    return is_a(spark, node, "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan")


def is_subquery(spark: SparkSession, node: Java) -> bool:
    """Whether an expression holds a plan."""
    return is_a(spark, node, "org.apache.spark.sql.catalyst.expressions.PlanExpression")


def parse_query(spark: SparkSession, text: str) -> Java:
    """Spark's parsed plan of a text that must be one query; raises ParseException."""
    return spark._jsparkSession.sessionState().sqlParser().parseQuery(text)


def bind_catalogs(spark: SparkSession) -> None:
    """Let a new session's catalogs be its own.

    Delta's catalog keeps the session that is *active* in the thread when it is first used, which
    need not be the session it belongs to.
    """
    with active(spark):
        spark.catalog.currentCatalog()


def session_catalog(spark: SparkSession) -> Java:
    return spark._jsparkSession.sessionState().catalog()


def table_identifier(spark: SparkSession, schema: str | None, name: str) -> Java:
    identifier = java_class(spark, "org.apache.spark.sql.catalyst.TableIdentifier")
    return identifier(name, some(spark, schema))


def location_text(spark: SparkSession, uri: Java) -> str:
    """A URI as Hadoop's Path prints it: without percent-encoding."""
    return java_class(spark, "org.apache.hadoop.fs.Path")(uri).toString()


def schema_location(spark: SparkSession, schema: str) -> str:
    """Where a schema of Spark's own catalog keeps its tables; raises AnalysisException."""
    uri = session_catalog(spark).getDatabaseMetadata(schema).locationUri()
    return location_text(spark, uri)


def function_identifier(spark: SparkSession, schema: str | None, name: str) -> Java:
    identifier = java_class(spark, "org.apache.spark.sql.catalyst.FunctionIdentifier")
    return identifier(name, some(spark, schema))


def is_temporary_function(spark: SparkSession, name: str) -> bool:
    return session_catalog(spark).isTemporaryFunction(function_identifier(spark, None, name))


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    return session_catalog(spark).isTempView(table_identifier(spark, None, name))


def hadoop_path(spark: SparkSession, location: str) -> tuple[Java, Java]:
    """A place and the file system that it is on."""
    path = java_class(spark, "org.apache.hadoop.fs.Path")(location)
    return path, path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def delta_version(spark: SparkSession) -> str:
    """The version of the Delta jar that this session has loaded."""
    return packages(spark).io.delta.package.VERSION()


def try_internals(spark: SparkSession) -> None:
    """Try everything above on a trivial query; raises Py4JError when a signature is missing."""
    plan = parse_query(spark, "SELECT 1 FROM (VALUES (1)) AS t WHERE EXISTS (SELECT 1)")
    is_plan(spark, plan)
    is_subquery(spark, plan)
    list(items(plan.children()))
    option(plan.origin().startIndex())
    is_temporary_function(spark, "now")
    is_temporary_view(spark, "nothing")
    static(spark, VIEW, "effectiveSQLConf")(scala_map(spark, java_map(spark, {})), False, "4.2.0")
    scala_context(spark).statusStore()
    spark._jsparkSession.sharedState().statusStore()
