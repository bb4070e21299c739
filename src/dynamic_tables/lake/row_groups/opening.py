"""Which table is meant: a name, a path, or a table object of delta-spark or deltalake."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from dynamic_tables.errors import InvalidInput, SetupError
from dynamic_tables.lake import catalog, jvm
from dynamic_tables.lake.embedded import TESTED
from dynamic_tables.lake.supported import tested_session
from dynamic_tables.names import qualify, split_name
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.row_groups.table import RowGroupTable


def opened(table: Any, spark: SparkSession | None, *, lock_wait_s: float) -> RowGroupTable:
    """The newest version of a table; refuses what we do not dare to rewrite."""
    if find_spec("pyarrow") is None:
        raise SetupError(
            "is not installed, and row groups are written with it",
            reason=Reason.ARROW_MISSING,
            about="pyarrow",
            hint="pip install 'spark-dynamic-tables[local]'",
        )
    from dynamic_tables.lake.row_groups.table import RowGroupTable  # noqa: PLC0415  needs pyarrow

    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SetupError(
            "no Spark session is active",
            reason=Reason.SPARK_MISSING,
            about="rorder",
            hint="name it: rorder(table, spark=spark)",
        )
    tested_session(session, TESTED)
    log, name = _log_of(table, session)
    return RowGroupTable(session, log, name=name, lock_wait_s=lock_wait_s)


def _log_of(table: Any, session: SparkSession) -> tuple[jvm.Java, str]:
    if hasattr(table, "table_uri"):  # of deltalake
        table = table.table_uri
    if hasattr(table, "_jdt"):  # of delta-spark
        log = table._jdt.table().deltaLog()
        return log, log.dataPath().toString()
    if not isinstance(table, str):
        raise InvalidInput(
            "is neither a name nor a path nor a Delta table",
            reason=Reason.BAD_NAME,
            about=type(table).__name__,
            hint="rorder('sales.orders'), or rorder('s3a://bucket/orders')",
        )
    if "/" in table:
        name = catalog.path_name(table)
    else:
        namespace = (session.catalog.currentCatalog(), session.catalog.currentDatabase())
        name = qualify(split_name(table), namespace)
    return catalog.log_of(session, name), str(name) if name.catalog else table
