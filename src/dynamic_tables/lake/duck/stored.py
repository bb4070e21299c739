"""The stored tables: plain DuckLake tables with the rows of dynamic tables.

A stored table is made under a name of ours and gets its own with the first load. Its definition and
its numbers n lie in tables of ours in the same lake (see `own`).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace

import duckdb

from dynamic_tables.definition import Column, Definition, Source
from dynamic_tables.errors import Held, InvalidInput, Refused, SetupError
from dynamic_tables.lake.base import Commit, Layout, Moves, Standing
from dynamic_tables.lake.duck import own
from dynamic_tables.lake.duck.catalog import Catalog, Table, View
from dynamic_tables.lake.duck.connection import Connection
from dynamic_tables.lake.duck.faults import headline
from dynamic_tables.lake.duck.log import SnapshotLog
from dynamic_tables.lake.duck.opening import FILES, Instance
from dynamic_tables.lake.duck.own import Kept
from dynamic_tables.lake.duck.references import find_references
from dynamic_tables.lake.duck.text import (
    OWN_SCHEMA,
    literal,
    name_sql,
    quote,
    shown_sql,
    unseen_name,
)
from dynamic_tables.lake.pins import pin_of
from dynamic_tables.lake.plans import groups_change
from dynamic_tables.names import SMALL_LAKE, TableName, check_not_reserved
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason
from dynamic_tables.steps import CompactionStep, reached

LAYOUT = ("cluster_by", "partitioned_by", "row_groups_by")


class StoredTables:
    """Making, finding, naming and deleting stored tables."""

    def __init__(self, instance: Instance, *, lock_wait_s: float) -> None:
        self._instance = instance
        self._lock_wait_s = lock_wait_s
        self.catalog = Catalog(instance)
        self.log = SnapshotLog(instance)
        self._source_ids: dict[str, str] = {}  # by our table id; a stored table keeps its own
        self._known: tuple[int, dict[str, Kept]] = (-1, {})  # what our own table said at a version
        if not self.catalog.has_schema(OWN_SCHEMA):
            with self._writing() as cursor:
                own.make(cursor)

    @contextmanager
    def _writing(self) -> Generator[Connection]:
        """One transaction of ours, alone."""
        with self._alone("the lake"):
            cursor = self._instance.cursor()
            try:
                cursor.execute("BEGIN")
                yield cursor
                cursor.execute("COMMIT")
            finally:
                self._instance.changed()
                cursor.close()  # rolls back what was not committed

    @contextmanager
    def _alone(self, about: str) -> Generator[None]:
        """All tables share one sequence of snapshots, so one thread commits at a time."""
        lock: threading.RLock = self._instance.commit_lock
        if not lock.acquire(timeout=self._lock_wait_s):
            raise Held(
                f"somebody else has been committing to it for {self._lock_wait_s:g} s",
                reason=Reason.HELD,
                about=about,
                hint="wait until it ends, or end it; then refresh again",
            )
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def commit_lock(self, definition: Definition) -> Generator[None]:
        with self._alone(str(definition.name)):
            yield

    # Names

    def check_name(self, name: TableName, *, instead_of: TableName | None = None) -> None:
        """The schema exists, nobody has the name, and the table can get there."""
        check_not_reserved(name.name, what="table")
        if name.catalog.lower() != SMALL_LAKE or not self.catalog.has_schema(name.schema):
            raise InvalidInput(
                "there is no such schema",
                reason=Reason.BAD_NAME,
                about=f"{name.catalog}.{name.schema}",
                hint=f"CREATE SCHEMA {quote(name.schema)}",
            )
        if instead_of is not None and instead_of.schema.lower() != name.schema.lower():
            raise InvalidInput(
                "DuckLake cannot move a table to another schema",
                reason=Reason.BAD_NAME,
                about=str(name),
                hint=f"choose a name in {instead_of.schema}, or drop the table and create it there",
            )
        if self.catalog.table(name) or self.catalog.view(name):
            raise InvalidInput(
                "there is a table or view of this name already",
                reason=Reason.ALREADY_EXISTS,
                about=str(name),
                hint=f"DROP TABLE {name}, or choose another name",
            )

    def check_options(self, name: TableName, options: Options) -> None:
        for option in LAYOUT:
            if getattr(options, option):
                raise InvalidInput(
                    f"{option.upper()} needs a lake on Spark: DuckLake tables have no layout here",
                    reason=Reason.CONTRADICTION,
                    about=str(name),
                    hint="leave the option out",
                )

    def location_for(self, name: TableName, table_id: str) -> str:
        folder = self._instance.folder / FILES / name.schema / unseen_name(table_id)
        return str(folder)

    def publish(self, definition: Definition) -> None:
        """Give the stored table its name, or make the view, if it is not there yet."""
        table = self.stored_table(definition)
        if self._is_published(definition, table):
            return
        if self._taken(definition, table):
            raise Refused(
                "the name belongs to another table, so the dynamic table cannot be seen under it",
                reason=Reason.ALREADY_EXISTS,
                about=str(definition.name),
                hint=f"drop or rename the other one, or ALTER DYNAMIC TABLE {definition.name}"
                " RENAME TO …",
            )
        with self._writing() as cursor:
            self._name(cursor, definition, table)

    def _is_published(self, definition: Definition, table: Table) -> bool:
        view = self.catalog.view(definition.name)
        wanted = self._canonical_view(definition) if definition.auxiliary else None
        return table.name == definition.stored_name and (view.text if view else None) == wanted

    def _taken(self, definition: Definition, table: Table) -> bool:
        """Whether one of its names belongs to somebody else."""
        view = self.catalog.view(definition.name)
        if view is not None and not self._is_ours(view, definition):
            return True
        others = (self.catalog.table(n) for n in (definition.name, definition.stored_name))
        return any(other is not None and other.source_id != table.source_id for other in others)

    def _name(self, cursor: Connection, definition: Definition, table: Table) -> None:
        """The stored table under its name; with auxiliary columns, a view that hides them."""
        view = name_sql(definition.name)
        if self.catalog.view(definition.name) is not None:
            cursor.execute(f"DROP VIEW {view}")
        stored = definition.stored_name
        if table.name != stored:
            cursor.execute(f"ALTER TABLE {name_sql(table.name)} RENAME TO {quote(stored.name)}")
        if definition.auxiliary is not None:
            cursor.execute(f"CREATE VIEW {view} AS {_view_text(definition)}")

    def _canonical_view(self, definition: Definition) -> str:
        """The view's text as DuckLake keeps it: the way DuckDB prints it."""
        printed = "SELECT json_deserialize_sql(json_serialize_sql(?::VARCHAR))"
        return self._instance.rows(printed, [_view_text(definition)])[0][0]

    def _is_ours(self, view: View, definition: Definition) -> bool:
        """Whether a view is the one over the stored table, of this definition or an earlier one."""
        tables = find_references(self._serialise, view.text).tables
        hidden = definition.name.hidden.parts[1:]
        return [reference.parts for reference in tables] == [hidden]

    def _serialise(self, text: str) -> str:
        return self._instance.rows("SELECT json_serialize_sql(?::VARCHAR)", [text])[0][0]

    def name_first_load(self, cursor: Connection, definition: Definition, table: Table) -> None:
        """In the transaction of the first load: rows and name appear together.

        A name that is taken is told by `publish`, once the rows stand.
        """
        if table.name == self._unseen(definition) and not self._taken(definition, table):
            self._name(cursor, definition, table)

    def unpublish(self, definition: Definition) -> None:
        """Take the name away; the rows stay."""
        table = self._stored(definition.table_id)
        view = self.catalog.view(definition.name)
        with self._writing() as cursor:
            if view is not None and self._is_ours(view, definition):
                cursor.execute(f"DROP VIEW {name_sql(view.name)}")
            if table is not None and table.name.name != unseen_name(definition.table_id):
                unseen = quote(unseen_name(definition.table_id))
                cursor.execute(f"ALTER TABLE {name_sql(table.name)} RENAME TO {unseen}")

    # Making and deleting

    def is_laid_out(self, definition: Definition) -> bool:
        return self._kept(definition.table_id) is not None

    def lay_out(self, definition: Definition) -> None:
        """Make the empty stored table, which nobody sees yet, and keep its definition."""
        name = self._unseen(definition)
        columns = ", ".join(f"{quote(item.name)} {item.type}" for item in definition.stored_columns)
        try:
            with self._writing() as cursor:
                cursor.execute(f"CREATE TABLE {name_sql(name)} ({columns})")
                own.add(cursor, definition)
        except (duckdb.ParserException, duckdb.BinderException, duckdb.InvalidInputException) as e:
            raise InvalidInput(
                headline(e), reason=Reason.BAD_COLUMNS, about=str(definition.name)
            ) from e
        self._note_id(definition)
        if definition.options.comment:
            self.apply_layout(definition, ("comment",))

    def _unseen(self, definition: Definition) -> TableName:
        return TableName(SMALL_LAKE, definition.name.schema, unseen_name(definition.table_id))

    def _note_id(self, definition: Definition) -> str | None:
        """DuckLake gives the id with the commit, so it is noted after it."""
        table = self.catalog.table(self._unseen(definition))
        if table is None:
            return None
        with self._writing() as cursor:
            own.note_id(cursor, definition.table_id, table.source_id)
        return table.source_id

    def save_definition(self, definition: Definition) -> None:
        with self._writing() as cursor:
            own.save(cursor, definition)

    def erase(self, definition: Definition) -> None:
        """The stored table and its definition go together."""
        table = self._stored(definition.table_id) or self.catalog.table(self._unseen(definition))
        with self._writing() as cursor:
            if table is not None:
                cursor.execute(f"DROP TABLE {name_sql(table.name)}")
            own.forget(cursor, definition.table_id)

    def apply_layout(self, definition: Definition, changed: Collection[str]) -> None:
        """Of the options that DuckLake keeps there is one: the comment."""
        if "comment" in changed:
            text = literal(definition.options.comment) if definition.options.comment else "NULL"
            table = name_sql(self.stored_table(definition).name)
            with self._writing() as cursor:
                cursor.execute(f"COMMENT ON TABLE {table} IS {text}")

    def optimize(self, definition: Definition, *, files_only: bool = False) -> None:  # noqa: ARG002  it has no order
        """Write small changes out to files and merge small files; no row changes."""
        name, about = self.stored_table(definition).name, str(definition.name)
        flush = "ducklake_flush_inlined_data(?, schema_name => ?, table_name => ?)"
        merge = "ducklake_merge_adjacent_files($1, $3, schema => $2)"
        with self._alone(about):
            reached(CompactionStep.LOCKED, about)
            for call, step in ((flush, CompactionStep.FOLDED), (merge, CompactionStep.MERGED)):
                self._instance.rows(f"CALL {call}", [SMALL_LAKE, name.schema, name.name])
                self._instance.changed()
                reached(step, about)

    def sizes(self, definition: Definition, moves: Moves | None) -> None:
        """Unknown: tables of this lake are small, and the order of strategies will do."""

    def rows_only_come(self, definition: Definition, moves: Moves) -> bool | None:
        """Whether the snapshots tell that rows of the sources came and none went."""
        if groups_change(definition, moves):
            return False
        went = [self._rows_went(source, moves) for source in definition.sources]
        return False if True in went else None if None in went else True

    def _rows_went(self, source: Source, moves: Moves) -> bool | None:
        before, after = pin_of(moves.before, source), pin_of(moves.after, source)
        table = self.catalog.by_id(after.source_id)
        if table is None:
            return None
        return self.log.rows_went(table.lake_id, before.version, after.version)

    def layout(self, definition: Definition) -> Layout:  # noqa: ARG002
        """Nothing to improve: DuckLake keeps small changes in its catalog."""
        return Layout()

    # Looking

    def _kept(self, table_id: str) -> Kept | None:
        """Read again only after commits that are no refreshes; those tell their number."""
        table = self.catalog.table(own.TABLES)
        assert table is not None, "made when the lake was opened"
        version = self.log.unstamped(table.lake_id)
        if self._known[0] != version:
            self._known = (version, {})
        known = self._known[1]
        kept = known.get(table_id) or self._read_kept(table_id)
        if kept is None:
            return None
        known[table_id] = kept
        return replace(kept, sequence=max(kept.sequence, self.log.number(table_id)))

    def _read_kept(self, table_id: str) -> Kept | None:
        kept = own.read(self._instance, table_id)
        if kept is None:
            return None
        source_id = kept.source_id or self._note_id(kept.definition)
        if source_id:
            self._source_ids[table_id] = source_id
        return replace(kept, source_id=source_id)

    def _stored(self, table_id: str) -> Table | None:
        """The stored table of a dynamic table, under whatever name."""
        if table_id not in self._source_ids:
            self._kept(table_id)
        source_id = self._source_ids.get(table_id)
        return None if source_id is None else self.catalog.by_id(source_id)

    def stored_table(self, definition: Definition) -> Table:
        table = self._stored(definition.table_id)
        if table is None:
            raise _gone(definition)
        return table

    def standing(self, definition: Definition) -> Standing:
        kept, table = self._kept(definition.table_id), self.stored_table(definition)
        if kept is None:
            raise _gone(definition)
        return Standing(
            sequence=kept.sequence,
            version=self.log.version_of(table.lake_id, table.created, definition.table_id),
            definition=kept.definition,
            columns=self.columns_of(table),
        )

    def columns_of(self, table: Table) -> tuple[Column, ...]:
        return self.catalog.columns(table.name)

    def columns_at(self, source_id: str, version: int) -> tuple[Column, ...]:
        return self.catalog.columns(self.catalog.name_at(source_id, version), version)

    def stored_at(self, definition: Definition, version: int) -> str:
        """The stored table at a version, as a relation."""
        name = self.catalog.name_at(self.stored_table(definition).source_id, version)
        return f"{name_sql(name)} AT (VERSION => {version:d})"

    def shown_at(self, definition: Definition, version: int) -> str:
        """What users saw of it at a version, as a relation."""
        stored = self.stored_at(definition, version)
        return f"({shown_sql(stored, definition.columns, definition.hidden)})"

    def commits(self, definition: Definition, after: int, to: int) -> tuple[Commit, ...]:
        return self.log.commits(self.stored_table(definition).lake_id, after, to)

    def stored_definitions(self) -> Iterator[Definition]:
        """All definitions in the lake, for rebuilding a lost store."""
        yield from own.definitions(self._instance)

    def committed(self) -> None:
        """What was known about the lake may be old now."""
        self._instance.changed()

    def is_next(self, table_id: str, sequence: int) -> bool:
        """Whether nobody has n yet, and it is the next one; stays so while the lock is held."""
        kept = self._kept(table_id)
        return kept is not None and kept.sequence == sequence - 1


def _view_text(definition: Definition) -> str:
    _, schema, name = definition.stored_name.parts
    stored = f"{quote(schema)}.{quote(name)}"
    return shown_sql(stored, definition.columns, definition.hidden)


def _gone(definition: Definition) -> SetupError:
    return SetupError(
        "the stored table is not in the lake any more",
        reason=Reason.LAKE_CHANGED,
        about=str(definition.name),
        hint=f"DROP DYNAMIC TABLE {definition.name} and create it again",
    )
