"""A private connection in which one table is refreshed: compute, commit, compare.

The query is computed into a temporary table first: inside a transaction that has written, DuckLake
shows its own writes even in older versions. Then one transaction changes the rows, takes the number
n and leaves the stamp, all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import duckdb

from dynamic_tables.compiler import duck_bags as bags
from dynamic_tables.compiler.plan import DeltaPlan, Situation, Tables
from dynamic_tables.definition import Column, Definition
from dynamic_tables.errors import InternalError
from dynamic_tables.lake.base import Delta, Difference, Moves, Progress, Remaining, Stamp
from dynamic_tables.lake.duck import own, parts
from dynamic_tables.lake.duck.catalog import Table, described
from dynamic_tables.lake.duck.connection import Connection
from dynamic_tables.lake.duck.deltas import KEYS, same_keys, situation
from dynamic_tables.lake.duck.faults import headline
from dynamic_tables.lake.duck.log import packed
from dynamic_tables.lake.duck.text import columns_sql, name_sql, quote
from dynamic_tables.lake.duck.types import check_columns, storable, stored_form
from dynamic_tables.lake.pins import column_change, pin_of, schema_changed
from dynamic_tables.lake.plans import same_types
from dynamic_tables.model import Pin, Strategy, Work
from dynamic_tables.names import RESERVED_PREFIX, SMALL_LAKE
from dynamic_tables.reasons import Reason

if TYPE_CHECKING:
    from dynamic_tables.lake.duck.lake import DuckLake

ROWS = f"temp.{RESERVED_PREFIX}rows"
CHANGES = f"temp.{RESERVED_PREFIX}changes"
MERGED = Tables(
    parts=f"temp.{RESERVED_PREFIX}parts",
    rows=f"temp.{RESERVED_PREFIX}grouped",
    groups=f"temp.{RESERVED_PREFIX}groups",
    keys=f"temp.{KEYS}",
)
SAMPLE_ROWS = 20  # how many differing rows `verify` shows
AUTHOR = "dynamic-tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckRows:
    """The result of a query at a cut; the rows lie in a temporary table."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


class DuckArea:
    """See `lake.base.WorkArea`."""

    def __init__(self, lake: DuckLake, cursor: Connection, label: str) -> None:
        self._lake = lake
        self._cursor = cursor
        self._label = label
        self._cardinality_ratio: float | None = None

    # Computing

    def compute(self, definition: Definition, pins: Sequence[Pin], instant: datetime) -> DuckRows:
        """The query of a definition at a cut, with the columns it was declared with."""
        pins = [pin_of(pins, source) for source in definition.sources]
        changed = self._lake.remaining_columns(definition, pins)
        text = self._lake.pinned(definition, pins, instant, columns=changed)
        columns = self._described(definition, text, changed)
        names = columns_sql([column.name for column in definition.stored_columns])
        kept = stored_form(text, columns)
        self._cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE {RESERVED_PREFIX}rows AS "  # noqa: S608  quoted
            f"SELECT * FROM ({kept}\n) AS {RESERVED_PREFIX}result ({names})"
        )
        return DuckRows(columns=self._named(definition, storable(columns)))

    def _described(
        self, definition: Definition, text: str, changed: Remaining
    ) -> tuple[Column, ...]:
        """What the query gives now; refuses other columns than those declared."""
        try:
            columns = described(self._cursor.execute(f"DESCRIBE {text}").fetchall())
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise schema_changed(definition, changed, headline(error)) from error
        check_columns(columns[: len(definition.columns)])
        declared = [column.name for column in definition.stored_columns]
        if what := column_change(declared, [column.name for column in columns]):
            raise schema_changed(definition, changed, what)
        return columns

    def _named(self, definition: Definition, columns: Sequence[Column]) -> tuple[Column, ...]:
        pairs = zip(definition.stored_columns, columns, strict=True)
        return tuple(Column(name=declared.name, type=found.type) for declared, found in pairs)

    def delta(
        self,
        definition: Definition,
        plan: DeltaPlan,
        strategy: Strategy,
        moves: Moves,
        base: int,
        too_many: Callable[[int], bool] | None = None,  # noqa: ARG002  one process, no workers
    ) -> Delta | Reason:
        """Keep what the sources' changes make of the table; a reason if they cannot be had."""
        if not same_types(definition, plan, moves, self._types_at):
            return Reason.SOURCE_SCHEMA_CHANGED
        now = situation(self._cursor, self._lake.catalog, definition, plan, moves)
        if strategy is Strategy.KEYS:
            return self._affected(definition, plan, now, base)
        if strategy is Strategy.MERGE:
            return self._merged(definition, plan, now, base)
        if strategy is Strategy.FOLD:
            return self._folded(definition, plan, now, base)
        changes = plan.changes(now)
        names = [column.name for column in definition.stored_columns]
        self._keep(bags.netted(changes, _typed(definition)) if changes else bags.nothing(names))
        gone = self._value(f"SELECT count(*) FROM {CHANGES} WHERE {bags.COPIES} < 0")  # noqa: S608
        if gone and strategy is Strategy.APPEND:
            return Reason.ROWS_WENT
        if gone:
            self._check_present(definition, base)
        return Delta(changes=self._size())

    def _affected(
        self, definition: Definition, plan: DeltaPlan, now: Situation, base: int
    ) -> Delta | Reason:
        """`keys`: the rows of the affected keys against the stored ones."""
        names = [column.name for column in definition.stored_columns]
        affected = plan.affected(now, definition.inexact)
        columns = plan.exact_key_columns(definition.inexact)
        if affected is None:
            self._keep(bags.nothing(names))
            return Delta(changes=0)
        self._cursor.execute(f"CREATE OR REPLACE TEMP TABLE {KEYS} AS {affected}")
        if self._exceeds_threshold(definition, f"temp.{KEYS}", base):
            return Reason.ABOVE_THRESHOLD
        stored = (
            f"(SELECT * FROM (FROM {self._lake.stored_at(definition, base)}) AS v WHERE EXISTS "  # noqa: S608
            f"(SELECT 1 FROM temp.{KEYS} AS k WHERE {same_keys(columns, 'v', 'k')}))"
        )
        rows = plan.rows_of(now, f"temp.{KEYS}", definition.inexact)
        typed = f"(SELECT {_typed(definition)} FROM ({rows}))"  # noqa: S608  quoted
        self._keep(bags.difference(typed, stored, names))
        return Delta(changes=self._size())

    def _merged(
        self, definition: Definition, plan: DeltaPlan, now: Situation, base: int
    ) -> Delta | Reason:
        """`merge`: the new rows of the changed groups against their stored ones."""
        names = [column.name for column in definition.stored_columns]
        stored = f"(FROM {self._lake.stored_at(definition, base)})"
        found = plan.merge(now, MERGED, stored=stored, types=definition.types)
        if found is None:
            self._keep(bags.nothing(names))
            return Delta(changes=0)
        self._make(MERGED.parts, found.parts)
        if self._exceeds_threshold(definition, MERGED.parts, base):
            return Reason.ABOVE_THRESHOLD
        self._make(MERGED.rows, found.rows)
        self._make(MERGED.groups, found.groups)
        self._make(MERGED.keys, found.keys)
        new = f"SELECT {_typed(definition)} FROM ({found.merged})"  # noqa: S608  quoted
        if self._value(f"SELECT count(*) FROM {MERGED.keys}"):  # noqa: S608  a constant
            recomputed = plan.recomputed(now, MERGED.keys)
            new += f" UNION ALL SELECT {_typed(definition)} FROM ({recomputed})"  # noqa: S608
        self._keep(bags.difference(f"({new})", MERGED.rows, names))
        return Delta(changes=self._size())

    def _folded(
        self, definition: Definition, plan: DeltaPlan, now: Situation, base: int
    ) -> Delta | Reason:
        """`fold`: what the changed groups gain and lose; nothing that is stored is read."""
        names = [column.name for column in definition.stored_columns]
        found = plan.fold(now, MERGED, types=definition.types)
        if found is None:
            self._keep(bags.nothing(names))
            return Delta(changes=0)
        assert definition.in_parts is not None
        self._make(MERGED.parts, found.parts)
        self._make(MERGED.keys, found.keys)
        new = f"SELECT {_typed(definition)} FROM ({found.partials})"  # noqa: S608  quoted
        stored = f"(SELECT {columns_sql(names)} FROM ({bags.nothing(names)}))"  # noqa: S608
        if self._value(f"SELECT count(*) FROM {MERGED.keys}"):  # noqa: S608  a constant
            recomputed = plan.recomputed(now, MERGED.keys)
            new += f" UNION ALL SELECT {_typed(definition)} FROM ({recomputed})"  # noqa: S608
            keys = definition.in_parts.keys
            groups = f"(FROM {MERGED.keys}) AS g"
            if keys:
                groups = f"(SELECT * FROM {MERGED.keys} AS g ({columns_sql(keys)}))"  # noqa: S608
            stored = parts.of_groups(self._lake.stored_at(definition, base), groups, keys)
        self._keep(bags.difference(f"({new})", stored, names))
        return Delta(changes=self._size())

    def _exceeds_threshold(self, definition: Definition, affected: str, base: int) -> bool:
        """Whether more keys are affected than the user allows, as a share of the stored rows."""
        allowed = definition.options.cardinality_threshold
        keys = self._value(f"SELECT count(*) FROM {affected}")  # noqa: S608  a constant
        stored = self._value(f"SELECT count(*) FROM {self._lake.stored_at(definition, base)}")  # noqa: S608
        if not stored:
            return False
        self._cardinality_ratio = min(1.0, keys / stored)
        return allowed is not None and self._cardinality_ratio > allowed

    def _make(self, table: str, query: str) -> None:
        self._cursor.execute(f"CREATE OR REPLACE TEMP TABLE {table.partition('.')[2]} AS {query}")

    def _types_at(self, pin: Pin) -> dict[str, str]:
        columns = self._lake.columns_at(pin.source_id, pin.version)
        ids = self._lake.catalog.column_ids(pin.source_id, pin.version)
        return {column.name.lower(): f"{column.type} {ids[column.name]}" for column in columns}

    def _check_present(self, definition: Definition, base: int) -> None:
        """A row that goes must be there, as often as it goes."""
        names = [column.name for column in definition.stored_columns]
        stored = self._lake.stored_at(definition, base)
        lacking = self._value(
            f"SELECT count(*) FROM ({bags.lacking(CHANGES, stored, names)})"  # noqa: S608
        )
        if lacking:
            raise InternalError(
                f"{lacking} rows are to be deleted that the stored table does not have",
                reason=Reason.INTERNAL,
                about=str(definition.name),
                hint=f"REFRESH DYNAMIC TABLE {definition.name} FULL, and report this",
            )

    def _keep(self, query: str) -> None:
        self._cursor.execute(f"CREATE OR REPLACE TEMP TABLE {RESERVED_PREFIX}changes AS {query}")

    def _size(self) -> int:
        size = f"SELECT coalesce(sum(abs({bags.COPIES})), 0)::BIGINT FROM {CHANGES}"  # noqa: S608
        return self._value(size)

    # Committing

    def overwrite(self, rows: DuckRows, definition: Definition, stamp: Stamp) -> None:
        """Replace all rows in one commit, the columns too if the query's changed."""
        table = self._lake.stored_table(definition)
        target = name_sql(table.name)
        same_columns = self._lake.columns_of(table) == rows.columns

        def write() -> Mapping[str, int]:
            deleted = self._changed(f"DELETE FROM {target}")  # noqa: S608  quoted
            if not same_columns:
                self._replace_columns(table, rows.columns)
            inserted = self._changed(f"INSERT INTO {target} SELECT * FROM {ROWS}")  # noqa: S608
            self._lake.name_first_load(self._cursor, definition, table)
            return _metrics(inserted, deleted)

        self._commit(definition, stamp, write)

    def _replace_columns(self, table: Table, columns: Sequence[Column]) -> None:
        """The table stays the same one; a table has at least one column at any time."""
        change = f"ALTER TABLE {name_sql(table.name)}"
        between = quote(f"{RESERVED_PREFIX}between")
        self._cursor.execute(f"{change} ADD COLUMN {between} INTEGER")
        for column in self._lake.columns_of(table):
            self._cursor.execute(f"{change} DROP COLUMN {quote(column.name)}")
        for column in columns:
            self._cursor.execute(f"{change} ADD COLUMN {quote(column.name)} {column.type}")
        self._cursor.execute(f"{change} DROP COLUMN {between}")

    def difference_size(self, rows: DuckRows, definition: Definition, base: int) -> int:
        """Compare with the stored rows as bags, keep the difference; its number of rows."""
        here, there = ROWS, self._lake.stored_at(definition, base)
        if definition.in_parts is not None:  # groups that are the same stay as they are stored
            keys, folded = definition.in_parts.keys, f"({definition.in_parts.over(there)})"
            apart = bags.difference(here, folded, rows.names)
            self._make(MERGED.keys, f"FROM {parts.groups_of(f'({apart})', keys)}")
            here, there = (parts.of_groups(r, MERGED.keys, keys) for r in (here, there))
        self._keep(bags.difference(here, there, rows.names))
        return self._size()

    def apply_difference(self, definition: Definition, stamp: Stamp) -> None:
        """Delete the copies that are too many, insert those that are missing, in one commit."""
        target = name_sql(self._lake.stored_table(definition).name)
        names = [column.name for column in definition.stored_columns]

        def write() -> Mapping[str, int]:
            gone = bags.surplus(target, CHANGES, names)
            deleted = self._changed(f"DELETE FROM {target} WHERE rowid IN ({gone})")  # noqa: S608
            new = bags.missing(CHANGES, names)
            inserted = self._changed(f"INSERT INTO {target} {new}")
            return _metrics(inserted, deleted)

        self._commit(definition, stamp, write)

    def fence(self, definition: Definition, stamp: Stamp) -> None:
        """A commit that takes the number n and no more, so that a late writer of n is skipped."""
        self._commit(definition, stamp, lambda: _metrics(0, 0))

    def _commit(
        self, definition: Definition, stamp: Stamp, write: Callable[[], Mapping[str, int]]
    ) -> None:
        """Rows, number and stamp in one transaction; nothing at all if the number is taken."""
        with self._lake.commit_lock(definition):
            if not self._lake.is_next(definition.table_id, stamp.sequence):
                return
            self._cursor.execute("BEGIN")
            try:
                own.take_number(self._cursor, definition.table_id, stamp.sequence)
                metrics = write()
                message = f"refresh {stamp.sequence} of {definition.name}: {stamp.strategy}"
                self._cursor.execute(
                    f"CALL {quote(SMALL_LAKE)}.set_commit_message(?, ?, extra_info => ?)",
                    [AUTHOR, message, packed(stamp, metrics)],
                )
                self._cursor.execute("COMMIT")
            except BaseException:  # whatever it was, this connection must not keep half of it
                self._rollback()
                raise
            finally:
                self._lake.committed()

    def _rollback(self) -> None:
        """A COMMIT that failed has ended the transaction already."""
        try:
            self._cursor.execute("ROLLBACK")
        except duckdb.TransactionException as error:
            if "no transaction is active" not in str(error):
                raise

    def _changed(self, statement: str) -> int:
        """How many rows a statement changed."""
        return self._value(statement)

    def _value(self, statement: str) -> Any:
        found = self._cursor.execute(statement).fetchone()
        assert found is not None
        return found[0]

    # Checking and telling

    def slicer(self, definition: Definition, sequence: int) -> NoReturn:  # noqa: ARG002
        """A lake of one process has no workers to share a refresh with: see `can_slice`."""
        raise InternalError(
            "DuckLake belongs to one process: nobody shares its refreshes",
            reason=Reason.INTERNAL,
            about=str(definition.name),
        )

    def verify(self, rows: DuckRows, definition: Definition, version: int) -> Difference:
        """Compare the query at its cut with the rows that the table shows, both ways."""
        self._keep(bags.difference(ROWS, self._lake.shown_at(definition, version), rows.names))
        found = f"FROM {CHANGES}"
        if definition.approximate:
            found = f"FROM ({bags.without_rounding(CHANGES, rows.names, definition.approximate)})"
        copies = bags.COPIES
        totals = self._cursor.execute(
            f"SELECT coalesce(sum({copies}) FILTER ({copies} > 0), 0)::BIGINT,"
            f" coalesce(-sum({copies}) FILTER ({copies} < 0), 0)::BIGINT {found}"
        ).fetchone()
        assert totals is not None
        sample = self._lake.fetched(self._cursor, f"SELECT * {found} LIMIT {SAMPLE_ROWS}")
        return Difference(
            missing=totals[0],
            unexpected=totals[1],
            sample=tuple(_readable(rows.names, row) for row in sample),
        )

    def work(self) -> Work:
        """DuckDB does not tell what it read; the rows are in the commit's figures."""
        return Work(cardinality_ratio=self._cardinality_ratio)

    def progress(self) -> Progress:
        return Progress(label=self._label)

    def cancel(self) -> None:
        self._cursor.interrupt()


def _metrics(inserted: int, deleted: int) -> dict[str, int]:
    """By the names that Delta's MERGE gives them, which the refresh reads."""
    return {
        "numTargetRowsInserted": inserted,
        "numTargetRowsUpdated": 0,
        "numTargetRowsDeleted": deleted,
    }


def _typed(definition: Definition) -> str:
    """The declared columns with the types that they are stored with."""
    return ", ".join(
        f"CAST({quote(column.name)} AS {column.type}) AS {quote(column.name)}"
        for column in definition.stored_columns
    )


def _readable(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    values = dict(zip(names, row, strict=False))
    return {"_difference": "missing" if row[len(names)] > 0 else "unexpected", **values}
