"""`rorder`: every value of a column in row groups of its own, in one commit that changes no row.

A reader that wants one value then fetches one small piece of one file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake.row_groups.choosing import Facts, native
from dynamic_tables.lake.row_groups.order import Order
from dynamic_tables.lake.row_groups.sizes import ROW_GROUP_BYTES
from dynamic_tables.layout.report import Became, PartitionReport, RorderReport
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dynamic_tables.lake.row_groups.files import Partition
    from dynamic_tables.lake.row_groups.ordering import Ordered
    from dynamic_tables.lake.row_groups.schemas import Schema
    from dynamic_tables.lake.row_groups.writing import NewFile

ENGINES = ("arrow", "native")
LOCK_WAIT_S = 60.0  # for others who commit to the table


def rorder(
    table: Any,
    *,
    unique_by: str | None = None,
    sort_by: str | Sequence[str] = (),
    where: str | None = None,
    engine: str = "arrow",
    values_per_row_group: int = 1,
    rows_per_row_group: int | None = None,
    max_row_group_bytes: int = ROW_GROUP_BYTES,
    max_materialize_size: int | None = None,
    spark: SparkSession | None = None,
) -> RorderReport:
    """Put every value of a column in row groups of its own; no row changes.

    `table` is a name, a path, or a table object of delta-spark or deltalake. Without `unique_by`
    its partition column `<column>_range` names the column. `where` chooses partitions.
    `engine="native"` lets Spark write row groups of `rows_per_row_group` rows instead.
    `max_materialize_size`: no row group is larger in memory than this, either.
    """
    from dynamic_tables.lake.row_groups.opening import opened  # noqa: PLC0415  needs pyspark

    check_positive(
        values_per_row_group=values_per_row_group,
        rows_per_row_group=rows_per_row_group,
        max_row_group_bytes=max_row_group_bytes,
        max_materialize_size=max_materialize_size,
    )
    columns = (sort_by,) if isinstance(sort_by, str) else tuple(sort_by)
    _check_meant_for(_engine(engine), values_per_row_group, rows_per_row_group)
    if engine == "native":
        return _natively(table, unique_by, columns, where, rows_per_row_group, spark)
    work = opened(table, spark, lock_wait_s=LOCK_WAIT_S)

    from dynamic_tables.lake.row_groups.ordering import put_in_order  # noqa: PLC0415  and pyarrow

    order = work.checked(
        Order(
            unique_by=unique_by or work.ranged_column(),
            sort_by=columns,
            values_per_row_group=values_per_row_group,
            row_group_bytes=min(max_row_group_bytes, max_materialize_size or max_row_group_bytes),
        )
    )
    done = put_in_order(work, order, where)
    return RorderReport(
        table=work.name,
        unique_by=order.unique_by,
        engine="arrow",
        version=done.version,
        partitions=_told(done, work.schema),
    )


def _engine(name: str) -> str:
    if name not in ENGINES:
        raise InvalidInput(
            f"{name!r} is not allowed; allowed: {', '.join(ENGINES)}",
            reason=Reason.BAD_VALUE,
            about="engine",
        )
    return name


def _check_meant_for(engine: str, values: int, rows: int | None) -> None:
    """Each engine has a size of its own; the other one's would be ignored."""
    if engine == "native" and values != 1:
        size, other = "values_per_row_group", "rows_per_row_group"
    elif engine == "arrow" and rows is not None:
        size, other = "rows_per_row_group", "values_per_row_group"
    else:
        return
    raise InvalidInput(
        f"engine={engine!r} takes no {size}",
        reason=Reason.CONTRADICTION,
        about=size,
        hint=f"give it {other}, or choose the other engine",
    )


def _natively(
    table: Any,
    unique_by: str | None,
    sort_by: Sequence[str],
    where: str | None,
    rows_per_row_group: int | None,
    spark: SparkSession | None,
) -> RorderReport:
    from dynamic_tables.lake.row_groups.opening import opened_natively  # noqa: PLC0415

    work = opened_natively(table, spark)
    column, before = unique_by or work.ranged_column(), work.detail
    if rows_per_row_group is None:
        parts = max(work.count_partitions(), 1)
        rows = max(work.count() // parts, 1)
        facts = Facts(bytes=before.size // parts, rows=rows, values=rows, columns=work.leaf_count)
        rows_per_row_group = native(facts).rows_per_row_group
        assert rows_per_row_group is not None
    version = work.rewrite(column, sort_by, where, rows_per_row_group)
    after = work.now()
    whole = PartitionReport(
        partition={},
        became=Became.ORDERED,
        files_before=before.files,
        bytes_before=before.size,
        files_after=after.files,
        bytes_after=after.size,
    )
    return RorderReport(
        table=work.name,
        unique_by=column,
        engine="native",
        version=version,
        partitions=(whole,),
    )


def check_positive(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise InvalidInput(
                f"{number} is not allowed; allowed: whole numbers from 1",
                reason=Reason.BAD_VALUE,
                about=name,
            )


def _told(done: Ordered, schema: Schema) -> tuple[PartitionReport, ...]:
    made: dict[int, list[NewFile]] = defaultdict(list)
    for file in done.files:
        made[file.partition].append(file)
    return tuple(
        _partition_told(p, schema, made[p.number], _became(p, done)) for p in done.partitions
    )


def _became(partition: Partition, done: Ordered) -> Became:
    """One whose rows had all gone is in order without files."""
    if partition.number in done.changed:
        return Became.CHANGED
    return Became.ORDERED if partition.number in done.todo else Became.AS_IT_WAS


def _partition_told(
    partition: Partition, schema: Schema, made: Sequence[NewFile], became: Became
) -> PartitionReport:
    before = PartitionReport(
        partition=schema.partition_values(partition.values),
        became=became,
        files_before=len(partition.files),
        bytes_before=partition.size,
        files_after=len(partition.files),
        bytes_after=partition.size,
    )
    if became is not Became.ORDERED:
        return before
    return replace(
        before,
        files_after=len(made),
        bytes_after=sum(file.size for file in made),
        rows=sum(file.rows for file in made),
        values=sum(file.value_count for file in made),
        row_groups=sum(file.row_groups for file in made),
    )
