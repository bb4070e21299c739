"""Which sessions we work on: classic ones, with a tested pair of Spark and Delta."""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from dynamic_tables.errors import SetupError
from dynamic_tables.lake import differing, jvm, transaction
from dynamic_tables.lake.jars import DELTA_PACKAGE
from dynamic_tables.reasons import Reason


def tested_session(spark: SparkSession, tested: Mapping[str, str]) -> None:
    """Refuse a user's session of another kind or version, and one without Delta."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise SetupError(
            "Spark Connect sessions are not supported yet",
            reason=Reason.CONNECT_UNSUPPORTED,
            about=type(spark).__name__,
            hint="use a classic session: SparkSession.builder.master(…).getOrCreate()",
        )
    hint = "tested together: " + ", ".join(f"{name} {number}" for name, number in tested.items())
    if spark.version != tested["pyspark"]:
        raise SetupError(
            f"Spark {spark.version} is not tested",
            reason=Reason.VERSION_UNTESTED,
            about="Spark",
            hint=hint,
        )
    try:
        found = jvm.delta_version(spark)
    except (TypeError, Py4JJavaError) as error:  # a package that is not there is not callable
        raise SetupError(
            "the session has no Delta Lake",
            reason=Reason.DELTA_MISSING,
            about="spark",
            hint=f"start Spark with --packages {DELTA_PACKAGE} and Delta's extension and catalog;"
            " in Python: delta.configure_spark_with_delta_pip(builder)",
        ) from error
    if found != tested["delta-spark"]:
        raise SetupError(
            f"Delta {found} is not tested", reason=Reason.VERSION_UNTESTED, about="Delta", hint=hint
        )
    _check_internals(spark)


def _check_internals(spark: SparkSession) -> None:
    """Another build of the same version may lack what we use of Spark's and Delta's internals."""
    try:
        jvm.try_internals(spark)
        transaction.try_internals(spark)
        differing.try_internals(spark)
    except Py4JError as error:
        raise SetupError(
            "this build of Spark or Delta lacks an internal that the product relies on: "
            + str(error).splitlines()[0],
            reason=Reason.VERSION_UNTESTED,
            about=f"Spark {spark.version}",
            hint="pip install 'spark-dynamic-tables[local]' brings the tested versions",
        ) from error
