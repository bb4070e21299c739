"""The files of a Delta table by partition, and exactly their rows.

Files are grouped by the partition values as the log has them, and these are used again word for
word: the same value may be written in several ways, and an odd one is never written anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake import jvm
from dynamic_tables.lake.faults import headline
from dynamic_tables.lake.jvm import Java
from dynamic_tables.lake.row_groups.order import ORDER_TAG, PARTIAL, Order
from dynamic_tables.lake.row_groups.schemas import Schema
from dynamic_tables.lake.transaction import all_files
from dynamic_tables.names import RESERVED_PREFIX
from dynamic_tables.reasons import Reason

PARTITION = f"{RESERVED_PREFIX}partition"  # a column: the number of a row's partition
FILE = f"{RESERVED_PREFIX}file"
SUBQUERIES = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of the table, as its newest version has it."""

    action: Java  # Delta's AddFile
    path: str  # as the log has it
    uri: str  # as Spark tells it in `_metadata.file_path`
    size: int
    vector: str | None  # which of its rows are gone
    tags: Mapping[str, str]

    @property
    def state(self) -> tuple[str, str | None]:
        """What changes whenever rows of the file go."""
        return self.path, self.vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """All files with the same partition values; a table without partitions is one."""

    number: int
    values: Mapping[str, str | None]  # as the log has them, by physical names
    files: tuple[DataFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def folder(self) -> str:
        """Where its files lie, below the table; files of a clone lie elsewhere."""
        inside = [file.path for file in self.files if ":" not in file.path.partition("/")[0]]
        return unquote(inside[0].rpartition("/")[0]) if inside else ""

    def is_ordered(self, order: str) -> bool:
        return all(file.tags.get(ORDER_TAG) == order for file in self.files)

    def is_ordered_somehow(self, order: Order) -> bool:
        """However many values share a row group."""
        return all(order.is_that_of(file.tags.get(ORDER_TAG)) for file in self.files)


def partitions_of(
    session: SparkSession, log: Java, snapshot: Java, schema: Schema, where: str | None
) -> list[Partition]:
    """The partitions that a condition names, or all of them.

    Files of partial rows are left as they are: compaction folds them.
    """
    found = all_files(snapshot)
    if where is not None:
        wanted = _matching(session, snapshot, schema, where)
        found = [file for file in found if file.path() in wanted]
    by_values: dict[str, list[DataFile]] = {}
    for action in found:
        content = json.loads(action.json())["add"]
        file = _data_file(action, content, log)
        if PARTIAL not in file.tags:
            values = json.dumps(content.get("partitionValues", {}), sort_keys=True)
            by_values.setdefault(values, []).append(file)
    return [
        Partition(number=number, values=json.loads(values), files=tuple(by_values[values]))
        for number, values in enumerate(sorted(by_values))
    ]


def _data_file(action: Java, content: Mapping[str, Any], log: Java) -> DataFile:
    vector = content.get("deletionVector")
    return DataFile(
        action=action,
        path=content["path"],
        uri=action.absolutePath(log).toUri().toString(),
        size=content["size"],
        vector=json.dumps(vector, sort_keys=True) if vector else None,
        tags=content.get("tags") or {},
    )


def states_of(snapshot: Java, log: Java) -> set[tuple[str, str | None]]:
    """The files of a version, each with the rows that are gone from it."""
    actions = ((file, json.loads(file.json())["add"]) for file in all_files(snapshot))
    return {_data_file(action, content, log).state for action, content in actions}


def _matching(session: SparkSession, snapshot: Java, schema: Schema, where: str) -> set[str]:
    """Paths of the files whose partition values fulfil a condition."""
    try:
        condition = session._jsparkSession.sessionState().sqlParser().parseExpression(where)
        if jvm.static(session, SUBQUERIES, "hasSubquery")(condition):
            raise _asks_others(where)
        named = {column.name().strip("`").lower() for column in jvm.items(condition.references())}
        others = named - {column.lower() for column in schema.partition_columns}
        if not others:
            found = snapshot.filesForScan(jvm.sequence(session, [condition]), False).files()
            return {file.path() for file in jvm.items(found)}
    except PySparkException as error:
        raise InvalidInput(
            headline(error), reason=Reason.SYNTAX, about=f"where {where!r}"
        ) from error
    raise InvalidInput(
        f"it names {', '.join(sorted(others))}: only partition columns choose whole files",
        reason=Reason.BAD_COLUMNS,
        about=f"where {where!r}",
        hint=f"partition columns: {', '.join(schema.partition_columns) or 'none'}",
    )


def _asks_others(where: str) -> InvalidInput:
    return InvalidInput(
        "it has a subquery, by which Delta leaves out no files",
        reason=Reason.BAD_COLUMNS,
        about=f"where {where!r}",
        hint="compare partition columns with literals: where=\"day IN ('2024-01-01')\"",
    )


def rows_of(
    session: SparkSession, log: Java, snapshot: Java, files: Sequence[Java], schema: Schema
) -> DataFrame:
    """Exactly the rows of some files, with the file of each, and its row id where there are some.

    Deletion vectors and old schemas are Delta's business.
    """
    listed = jvm.sequence(session, files)
    read = DataFrame(log.createDataFrame(snapshot, listed, False, jvm.some(session, None)), session)
    about = read.metadataColumn("_metadata")
    told = {FILE: about["file_path"]}
    if schema.row_ids is not None:
        told |= dict(
            zip(schema.row_ids, (about["row_id"], about["row_commit_version"]), strict=True)
        )
    return read.withColumns(told)


def numbered(rows: DataFrame, numbers: Iterable[tuple[str, int]]) -> DataFrame:
    """Rows with the number of their partition, known by the file that each row lies in.

    A row of a file that is not known has none, which whoever writes it notices.
    """
    known = [*numbers]
    if len({number for _, number in known}) == 1:
        return rows.withColumn(PARTITION, F.lit(known[0][1]))
    table = rows.sparkSession.createDataFrame(known, f"{FILE} STRING, {PARTITION} INT")
    return rows.join(F.broadcast(table), FILE, "left")
