"""Private sessions: what decides a result is carried over, what identifies a write is not.

`newSession()` copies neither runtime settings nor catalogs nor the current schema. A refresh must
see what the user's session saw at CREATE, and must not leave a trace in it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dynamic_tables.lake import jvm
from dynamic_tables.lake.embedded import SMALL_QUERIES
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.ranges import LISTED_AT_MOST

# Settings that change what a query returns. At CREATE their values are stored with the definition.
RESULT_SETTINGS = (
    "spark.sql.ansi.doubleQuotedIdentifiers",
    "spark.sql.ansi.enabled",
    "spark.sql.ansi.enforceReservedKeywords",
    "spark.sql.ansi.relationPrecedence",
    "spark.sql.caseSensitive",
    "spark.sql.charAsVarchar",
    "spark.sql.columnNameOfCorruptRecord",
    "spark.sql.crossJoin.enabled",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.function.concatBinaryAsString",
    "spark.sql.function.eltOutputAsString",
    "spark.sql.groupByAliases",
    "spark.sql.groupByOrdinal",
    "spark.sql.icu.caseMappings.enabled",
    "spark.sql.jsonGenerator.ignoreNullFields",
    "spark.sql.lateralColumnAlias.enableImplicitResolution",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.orderByOrdinal",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.parser.quotedRegexColumnNames",
    "spark.sql.readSideCharPadding",
    "spark.sql.session.timeZone",
    "spark.sql.storeAssignmentPolicy",
    "spark.sql.timestampType",
)
RESULT_PREFIX = "spark.sql.legacy."  # every legacy switch that is set by hand counts too

CODE_FACTORY = "spark.sql.codegen.factoryMode"
INTERPRETED_AT_MOST = 1_000  # rows

# Settings that must not follow a session into a private one: they mark one write.
NEVER_COPIED = (
    "spark.databricks.delta.write.",
    "spark.databricks.delta.commitInfo.userMetadata",
    "spark.databricks.delta.lastCommitVersionInSession",
    "spark.databricks.delta.properties.defaults.",  # our tables have the properties that we give
)

# Ours on every private session: rows are replaced whole, whatever the user has set; what is brought
# to the driver has dates of any age as they are.
PRIVATE_SETTINGS = {
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.databricks.delta.write.txnVersion.autoReset.enabled": "true",
    "spark.sql.files.ignoreMissingFiles": "false",  # what is gone is not the same as nothing
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.limit.initialNumPartitions": "64",  # what is brought to the driver: in one job
    "spark.sql.parquet.pushdown.inFilterThreshold": str(LISTED_AT_MOST),  # keys skip row groups
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # A version is gone when its files are, not when its commit has become old.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}


def result_settings(spark: SparkSession) -> dict[str, str]:
    """The result-relevant settings of a session, defaults included: elsewhere, or in a later
    Spark, they may be others."""
    return _effective(spark, jvm.settings(spark), lambda key: str(spark.conf.get(key)))


def view_settings(spark: SparkSession, metadata: Java) -> dict[str, str]:
    """The same of a view. Spark keeps with it what was set when it was made; all else has its
    default, whatever the session of the reader says."""
    conf = jvm.view_conf(spark, metadata)
    return _effective(spark, jvm.pairs(conf.getAllConfs()), conf.getConfString)


def _effective(
    spark: SparkSession, given: Mapping[str, str], default: Callable[[str], str]
) -> dict[str, str]:
    """Legacy switches of the whole process are left out: they are the same for everybody."""
    found = {key: given[key] if key in given else default(key) for key in RESULT_SETTINGS}
    legacy = {key: value for key, value in given.items() if key.startswith(RESULT_PREFIX)}
    return found | {key: legacy[key] for key in legacy if spark.conf.isModifiable(key)}


def differing_settings(some: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """The keys that two sets of settings do not agree on."""
    return sorted(key for key in {*some, *others} if some.get(key) != others.get(key))


def private_session(
    spark: SparkSession,
    *,
    settings: Mapping[str, str],
    namespace: tuple[str, str],
    small: bool = False,  # for small tables only
) -> SparkSession:
    """A session of its own over the same catalogs, as the user's session was at CREATE."""
    session = spark.newSession()
    wanted = {
        key: value
        for key, value in jvm.settings(spark).items()
        if not key.startswith((*NEVER_COPIED, RESULT_PREFIX))
    }
    there = jvm.settings(session)
    ours = {**PRIVATE_SETTINGS, **(_for_small_tables(spark) if small else {})}
    others = {k: v for k, v in {**wanted, **settings, **ours}.items() if there.get(k) != v}
    jvm.set_all(session, {k: v for k, v in others.items() if _is_modifiable(session, k)})
    jvm.bind_catalogs(session)
    use_namespace(session, namespace)
    return session


_modifiable: dict[str, bool] = {}  # by key; Spark answers alike in all sessions


def _is_modifiable(session: SparkSession, key: str) -> bool:
    if key not in _modifiable:
        _modifiable[key] = session.conf.isModifiable(key)
    return _modifiable[key]


def _for_small_tables(spark: SparkSession) -> dict[str, str]:
    """Nothing merges small partitions without adaptive execution: there are few from the start."""
    cores = spark.sparkContext.defaultParallelism
    partitions = min(int(spark.conf.get("spark.sql.shuffle.partitions") or cores), cores)
    return {**SMALL_QUERIES, "spark.sql.shuffle.partitions": str(partitions)}


@contextmanager
def small_queries(
    session: SparkSession, *, applies: bool = True, rows: int | None = None
) -> Generator[None]:
    """What runs inside reads few rows, whatever the session is for; `rows`: how many, if known.

    Thousands are worth the code that Spark makes for an expression once, and keeps.
    """
    wanted: dict[str, str | None] = {**SMALL_QUERIES} if applies else {}
    if applies and rows is not None and rows > INTERPRETED_AT_MOST:
        wanted[CODE_FACTORY] = None
    with settings_for_now(session, wanted):
        yield


@contextmanager
def settings_for_now(session: SparkSession, wanted: Mapping[str, str | None]) -> Generator[None]:
    """What runs inside has these settings; None: as if nobody had set it."""
    before = {key: session.conf.get(key, None) for key in wanted}
    changed = {key: value for key, value in wanted.items() if before[key] != value}
    try:
        for key, value in changed.items():
            _set(session, key, value)
        yield
    finally:
        for key in changed:
            _set(session, key, before[key])


def _set(session: SparkSession, key: str, value: str | None) -> None:
    session.conf.unset(key) if value is None else session.conf.set(key, value)


def use_namespace(session: SparkSession, namespace: tuple[str, str]) -> None:
    """Make catalog and schema current; a schema that is gone matters only to queries that need
    it."""
    catalog, schema = namespace
    if session.catalog.currentCatalog() != catalog:
        session.catalog.setCurrentCatalog(catalog)
    if session.catalog.currentDatabase() != schema:
        try:
            session.catalog.setCurrentDatabase(schema)
        except AnalysisException as error:
            if error.getCondition() != "SCHEMA_NOT_FOUND":
                raise
