"""`rorder_plan`: what each layout would cost readers of a table; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dynamic_tables.lake.row_groups.choosing import Choice, Facts, best, choices
from dynamic_tables.lake.row_groups.order import Order
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
    recommended: Choice | None  # for the largest partition; None: the table is empty

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
    plans = []
    for part in partitions:
        rows, values = counted.get(part.number, (0, 0))
        facts = Facts(bytes=part.size, rows=rows, values=values, columns=columns)
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
        recommended=_recommended(plans),
    )


def _recommended(plans: Sequence[PartitionPlan]) -> Choice | None:
    """What is best for the largest partition: files belong to one, and one layout is for all.

    >>> _recommended([])
    """
    known = [plan for plan in plans if plan.choices]
    return best(max(known, key=lambda plan: plan.bytes).choices) if known else None
