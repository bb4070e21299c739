"""Which table is meant: a name, a path, or a table object of delta-spark or deltalake."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from dynamic_tables.errors import InvalidInput, SetupError
from dynamic_tables.lake import catalog
from dynamic_tables.lake.embedded import TESTED
from dynamic_tables.lake.places import decoded
from dynamic_tables.lake.row_groups.native import NativeTable
from dynamic_tables.lake.supported import tested_session
from dynamic_tables.names import TableName, qualify, split_name
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.row_groups.table import RowGroupTable


def opened(
    table: Any, spark: SparkSession | None, *, lock_wait_s: float, called: str | None = None
) -> RowGroupTable:
    """The newest version of a table; refuses what we do not dare to rewrite."""
    if find_spec("pyarrow") is None:
        raise SetupError(
            "is not installed, and row groups are written with it",
            reason=Reason.ARROW_MISSING,
            about="pyarrow",
            hint="pip install 'spark-dynamic-tables[layout]', or engine='native'",
        )
    from dynamic_tables.lake.row_groups.table import RowGroupTable  # noqa: PLC0415  needs pyarrow

    session = session_of(spark)
    tested_session(session, TESTED)
    name = name_of(table, session)
    log = catalog.log_of(session, name)
    return RowGroupTable(session, log, name=called or _shown(name), lock_wait_s=lock_wait_s)


def opened_natively(table: Any, spark: SparkSession | None) -> NativeTable:
    """The same for Spark's own writer."""
    session = session_of(spark)
    name = name_of(table, session)
    return NativeTable(session, catalog.name_sql(name), name=_shown(name))


def session_of(spark: SparkSession | None) -> SparkSession:
    """The session that was given, or the active one."""
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SetupError(
            "no Spark session is active",
            reason=Reason.SPARK_MISSING,
            about="rorder",
            hint="name it: rorder(table, spark=spark)",
        )
    return session


def name_of(table: Any, session: SparkSession) -> TableName:
    """The qualified name of a table; of a path it has no catalog."""
    if hasattr(table, "table_uri"):  # of deltalake
        table = decoded(str(table.table_uri))
    elif hasattr(table, "detail"):  # of delta-spark
        table = table.detail().collect()[0].location
    if isinstance(table, Path):
        table = str(table.absolute())
    if not isinstance(table, str):
        raise InvalidInput(
            "is neither a name nor a path nor a Delta table",
            reason=Reason.BAD_NAME,
            about=type(table).__name__,
            hint="rorder('sales.orders'), or rorder('s3a://bucket/orders')",
        )
    if "/" in table:
        return catalog.path_name(table)
    namespace = (session.catalog.currentCatalog(), session.catalog.currentDatabase())
    return qualify(split_name(table), namespace)


def _shown(name: TableName) -> str:
    return str(name) if name.catalog else name.name
