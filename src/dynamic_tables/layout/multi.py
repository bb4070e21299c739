"""Row-group order spread over machines, without Spark: one partition a piece of work.

`rorder_setup_multi` looks at the table and writes nothing; `rorder_single` puts one partition in
order, anywhere, in a transaction of its own. A piece of work names its partition, not its files:
whoever does it looks at the table then, so that it may lie in a queue for long and be done twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_tables.errors import InvalidInput, Refused, SetupError
from dynamic_tables.lake.places import S3, decoded, local_path
from dynamic_tables.lake.row_groups.order import Order
from dynamic_tables.lake.row_groups.sizes import HELD_BYTES, ROW_GROUP_BYTES
from dynamic_tables.layout.report import Became, PartitionReport, RorderReport
from dynamic_tables.layout.rorder import check_positive
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.row_groups.single import Exchanged, Part, PlainTable

NEEDED = ("pyarrow", "obstore", "pyroaring")


@dataclass(frozen=True, slots=True, kw_only=True)
class RorderItem:
    """A piece of work: one partition of a table. As JSON it goes through any queue."""

    table: str  # where it lies
    table_id: str  # another table in the same place is left alone
    partition: Mapping[str, str | None]  # values by column; empty: the whole table
    values: Mapping[str, str | None]  # the same as the log has them
    unique_by: str
    sort_by: tuple[str, ...]
    values_per_row_group: int
    max_row_group_bytes: int
    max_materialize_size: int  # bytes of rows that are held in memory
    bytes: int  # of its files, when it was looked at
    only_conditional_writers: bool = False  # what was promised of a table on S3

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "sort_by": list(self.sort_by)}

    @classmethod
    def of(cls, given: RorderItem | Mapping[str, Any] | str | bytes) -> RorderItem:
        """From whatever a queue makes of it."""
        if isinstance(given, RorderItem):
            return given
        try:
            content: Any = json.loads(given) if isinstance(given, str | bytes) else dict(given)
            if set(content) == {field.name for field in fields(cls)}:
                content["sort_by"] = tuple(content["sort_by"])
                return cls(**content)
        except (TypeError, ValueError) as error:
            raise _no_item() from error
        raise _no_item()


def _no_item() -> InvalidInput:
    return InvalidInput(
        "this is no piece of work that rorder_setup_multi gave",
        reason=Reason.BAD_VALUE,
        about="item",
        hint="json.dumps(item.as_json()) is what goes through a queue",
    )


def rorder_setup_multi(
    table: Any,
    *,
    unique_by: str | None = None,
    sort_by: str | Sequence[str] = (),
    values_per_row_group: int = 1,
    max_row_group_bytes: int = ROW_GROUP_BYTES,
    max_materialize_size: int = HELD_BYTES,
    only_conditional_writers: bool = False,
) -> tuple[RorderItem, ...]:
    """What is to be done to a table, a piece for each partition that is not in order yet.

    `table` is a path, a URI, or a table object of deltalake. The arguments are those of `rorder`.
    `max_materialize_size`: so many bytes of rows are held in memory by one who does a piece.
    On S3 `only_conditional_writers` promises that nobody writes to the table meanwhile in a way
    that may overwrite the commits of others, as Delta on Spark does there.
    """
    check_positive(
        values_per_row_group=values_per_row_group,
        max_row_group_bytes=max_row_group_bytes,
        max_materialize_size=max_materialize_size,
    )
    location = _location(table)
    _check_exclusion(location, promised=only_conditional_writers)
    opened = _opened(location)
    order = opened.checked(
        Order(
            unique_by=unique_by or opened.columns.ranged_column(),
            sort_by=(sort_by,) if isinstance(sort_by, str) else tuple(sort_by),
            values_per_row_group=values_per_row_group,
            row_group_bytes=max_row_group_bytes,
        )
    )
    return tuple(
        RorderItem(
            table=location,
            table_id=opened.snapshot.metadata.id,
            partition=opened.columns.partition_values(part.values),
            values=part.values,
            unique_by=order.unique_by,
            sort_by=order.sort_by,
            values_per_row_group=values_per_row_group,
            max_row_group_bytes=max_row_group_bytes,
            max_materialize_size=max_materialize_size,
            bytes=part.size,
            only_conditional_writers=only_conditional_writers,
        )
        for part in opened.parts()
        if not part.is_ordered(order.tag)
    )


def rorder_single(item: RorderItem | Mapping[str, Any] | str | bytes) -> RorderReport:
    """Do one piece of work: put one partition in order, in one commit that changes no row."""
    work = RorderItem.of(item)
    _check_exclusion(work.table, promised=work.only_conditional_writers)
    table = _opened(work.table)
    _check_same(table, work)
    order = table.checked(
        Order(
            unique_by=work.unique_by,
            sort_by=work.sort_by,
            values_per_row_group=work.values_per_row_group,
            row_group_bytes=work.max_row_group_bytes,
        )
    )
    part = table.part(work.values)
    partition = table.columns.partition_values(part.values)
    done = None
    if not part.is_ordered(order.tag):
        from dynamic_tables.lake.row_groups.single import put_in_order  # noqa: PLC0415

        done = put_in_order(table, part, order, held_bytes=work.max_materialize_size)
    return RorderReport(
        table=work.table,
        unique_by=order.unique_by,
        engine="arrow",
        version=done.version if done is not None else None,
        partitions=(_told(part, partition, done),),
    )


def _check_same(table: PlainTable, work: RorderItem) -> None:
    """A table that is overwritten keeps its id, though its partitions may be others."""
    if table.snapshot.metadata.id == work.table_id and table.has_partition_columns(work.values):
        return
    raise Refused(
        "another table lies there now, or one with other partitions",
        reason=Reason.SOURCE_REPLACED,
        about=work.table,
        hint="call rorder_setup_multi again",
    )


def _told(
    part: Part, partition: Mapping[str, str | None], done: Exchanged | None
) -> PartitionReport:
    ordered = done is not None and done.version is not None
    became = Became.ORDERED if ordered else Became.CHANGED if done else Became.AS_IT_WAS
    files = done.files if done is not None and ordered else None
    return PartitionReport(
        partition=partition,
        became=became,
        files_before=len(part.files),
        bytes_before=part.size,
        files_after=len(part.files) if files is None else len(files),
        bytes_after=part.size if files is None else sum(file.size for file in files),
        rows=None if files is None else sum(file.rows for file in files),
        values=None if files is None else sum(file.value_count for file in files),
        row_groups=None if files is None else sum(file.row_groups for file in files),
    )


def _opened(location: str) -> PlainTable:
    for package in NEEDED:
        if find_spec(package) is None:
            raise SetupError(
                "is not installed, and without Spark row groups are written with it",
                reason=Reason.ARROW_MISSING,
                about=package,
                hint="pip install 'spark-dynamic-tables[serverless]'",
            )
    from dynamic_tables.lake.row_groups.single import PlainTable  # noqa: PLC0415  needs them

    return PlainTable(location)


def _location(table: Any) -> str:
    """Where a table lies; its name would need a catalog, which is Spark's."""
    if hasattr(table, "table_uri"):  # of deltalake
        return decoded(str(table.table_uri))
    if isinstance(table, Path):
        table = str(table.absolute())
    if not isinstance(table, str) or "/" not in table:
        raise InvalidInput(
            "is neither a path nor a URI of a Delta table",
            reason=Reason.BAD_NAME,
            about=table if isinstance(table, str) else type(table).__name__,
            hint="rorder_setup_multi('s3://bucket/orders'); names need a catalog: rorder(…)",
        )
    if "://" in table or table.startswith("file:"):
        return _uri(table.rstrip("/"))
    return str(Path(table).absolute())


def _uri(text: str) -> str:
    """With its scheme in lower case, as everybody compares it; refuses one that tells secrets.

    >>> _uri("S3://bucket/t"), _uri("abfss://container@account/t")
    ('s3://bucket/t', 'abfss://container@account/t')
    """
    scheme, colon, rest = text.partition(":")
    user, found, host = rest.removeprefix("//").partition("/")[0].rpartition("@")
    if found and ":" in user:
        raise InvalidInput(
            "a password in a URI shows in queues and errors",
            reason=Reason.BAD_VALUE,
            about=f"{scheme}://…@{host}",
            hint="give credentials by the environment",
        )
    return f"{scheme.lower()}{colon}{rest}"


def _check_exclusion(location: str, *, promised: bool) -> None:
    if local_path(location) is None and location.startswith(S3) and not promised:
        raise Refused(
            "on S3, Delta on Spark may overwrite the commits of others",
            reason=Reason.NO_EXCLUSION,
            about=location,
            hint="if no Spark driver writes to the table meanwhile: only_conditional_writers=True",
        )
