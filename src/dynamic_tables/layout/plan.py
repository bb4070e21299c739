"""`rorder_plan`: what each layout would cost readers of a table; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dynamic_tables.lake.row_groups.order import Order
from dynamic_tables.layout.choosing import Choice, Facts, best, choices
from dynamic_tables.layout.rorder import LOCK_WAIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One partition as it is, and as it could be."""

    partition: Mapping[str, str | None]
    files: int
    bytes: int
    rows: int
    values: int  # about
    ordered: bool  # its files are in this order already, one value a row group
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RorderPlan:
    """What `rorder` could do to a table."""

    table: str
    unique_by: str
    version: int
    partitions: tuple[PartitionPlan, ...]
    recommended: Choice | None  # None: the table is empty

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def rorder_plan(
    table: Any,
    *,
    unique_by: str | None = None,
    where: str | None = None,
    spark: SparkSession | None = None,
) -> RorderPlan:
    """Count the values of a column, and weigh the layouts; nothing is written."""
    from dynamic_tables.lake.row_groups.opening import opened  # noqa: PLC0415  needs pyspark

    work = opened(table, spark, lock_wait_s=LOCK_WAIT_S)
    order = work.checked(Order(unique_by=unique_by or work.ranged_column()))
    partitions = work.partitions(where)
    counted = work.count_values(partitions, order)
    columns = work.schema.leaf_count
    plans, whole = [], Facts(bytes=0, rows=0, values=0, columns=columns)
    for part in partitions:
        rows, values = counted.get(part.number, (0, 0))
        facts = Facts(bytes=part.size, rows=rows, values=values, columns=columns)
        whole = _sum(whole, facts)
        plans.append(
            PartitionPlan(
                partition=work.schema.partition_values(part.values),
                files=len(part.files),
                bytes=part.size,
                rows=rows,
                values=values,
                ordered=part.is_ordered(order.tag),
                choices=choices(facts) if values else (),
            )
        )
    return RorderPlan(
        table=work.name,
        unique_by=order.unique_by,
        version=work.version,
        partitions=tuple(plans),
        recommended=best(choices(whole)) if whole.values else None,
    )


def _sum(one: Facts, other: Facts) -> Facts:
    return Facts(
        bytes=one.bytes + other.bytes,
        rows=one.rows + other.rows,
        values=one.values + other.values,
        columns=one.columns,
    )
