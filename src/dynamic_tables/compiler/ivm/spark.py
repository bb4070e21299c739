"""The statements on Spark with Delta.

`VERSION AS OF` takes constants only, so texts with versions are put together from session variables
and run by EXECUTE IMMEDIATE. There is no transaction over two tables, so a refresh goes

    note the versions as pending ──► one MERGE, numbered ──► pending becomes last

and a run that died is finished by the next: what is pending stays as it was noted, and Delta skips
a MERGE whose number the table has seen. The pair of name and number (`txnAppId`, `txnVersion`) is a
setting of the session, so it is set around the MERGE alone. Everything is computed into cached
views first, because a MERGE may not read its own target inside a subquery.

No query tells the newest version of a table (`DESCRIBE HISTORY` is no query), but its change feed
does, from a version that is known: `max(_commit_version)` of the feed after the cursor. It is the
newest version that changed rows, so OPTIMIZE moves nothing. Where no version is known yet, at the
first load, a script looks for the greatest start that `table_changes` accepts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from dynamic_tables.compiler import functions
from dynamic_tables.compiler.emit import WEIGHT, Side, Within, key_column
from dynamic_tables.compiler.ivm.plan import Naming
from dynamic_tables.compiler.ivm.statements import Statements, Writer
from dynamic_tables.compiler.ivm.view import NO_COLUMN, Source, View
from dynamic_tables.compiler.plan import DeltaPlan, Situation
from dynamic_tables.compiler.rounding import rounded_columns
from dynamic_tables.names import is_odd_column, literal, quote

AGAIN = "run initialize_cursors again"
PAIR = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
NOTHING = "'SELECT 1'"
SIGN = "CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END"
HERE, THERE, OPERATION = "_ivm_here", "_ivm_there", "_ivm_op"
MARK = re.compile(r"_ivm_mark_([a-z0-9_]+?)__")
CLOCKS = {  # what a clock function is at an instant, in its own type
    "current_date": "CAST(timestamp_micros({}) AS DATE)",
    "curdate": "CAST(timestamp_micros({}) AS DATE)",
    "localtimestamp": "CAST(timestamp_micros({}) AS TIMESTAMP_NTZ)",
    "unix_timestamp": "{} DIV 1000000",
}
NEWEST = """BEGIN
    DECLARE found BIGINT DEFAULT 0;
    DECLARE step BIGINT DEFAULT 1;
    DECLARE beyond BOOLEAN DEFAULT FALSE;
    DECLARE answer BIGINT;
    WHILE step > 0 DO
        SET answer = NULL;
        BEGIN
            DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN SET beyond = TRUE; END;
            SET answer = (
                SELECT count(*) FROM (SELECT 1 FROM table_changes({table}, found + step) LIMIT 0)
            );
        END;
        IF answer IS NOT NULL THEN SET found = found + step; END IF;
        SET step = CASE WHEN beyond THEN step DIV 2 ELSE step * 2 END;
    END WHILE;
    SET {variable} = found;
END"""


def statements(view: View, plan: DeltaPlan, naming: Naming, home: tuple[str, str]) -> Statements:
    """All statements of one view."""
    return _SparkWriter(
        view=view, plan=plan, naming=naming, home=home, quote=quote, literal=literal
    ).statements()


def mark(purpose: str) -> str:
    """Stands in a text for the value of the session variable of that purpose."""
    return f"_ivm_mark_{purpose}__"


def mark_at(side: Side, what: object) -> str:
    return mark(f"{side.value}_{what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaves:
    """See `compiler.emit.Leaves`: versions are marks."""

    view: View
    naming: Naming
    pinned: bool = True

    def rows(self, source: str, side: Side, within: tuple[Within, ...] = ()) -> str:  # noqa: ARG002
        table = self.view.sources[source]
        place = list(self.view.sources).index(source)
        name = _name(table)
        relation = f"{name} VERSION AS OF {mark_at(side, place)}" if self.pinned else name
        return relation if table.columns else f"(SELECT 1 AS {NO_COLUMN} FROM {relation})"

    def changes(self, source: str) -> str:
        return quote(self.naming.aux_column(f"feed_{source.rpartition('_')[2]}"))

    def near(self, source: str, side: Side, within: Within, column: str) -> str:  # noqa: ARG002
        """The keys are not known when the statements are written."""
        return ""

    def clock(self, function: exp.Expr, side: Side) -> exp.Expr:
        if not self.pinned:
            return function
        form = CLOCKS.get(functions.function_name(function), "timestamp_micros({})")
        return sqlglot.parse_one(form.format(mark_at(side, "time")), dialect="spark")


def _name(source: Source) -> str:
    return ".".join(map(quote, source.parts))


def _lines(text: str) -> str:
    """A literal that keeps its lines, for those who read the statements."""
    return "'" + "\n".join(literal(line)[1:-1] for line in text.split("\n")) + "'"


class _SparkWriter(Writer):
    """Writes the statements of one view."""

    # Words

    @property
    def leaves(self) -> _Leaves:
        return _Leaves(view=self.view, naming=self.naming)

    @property
    def sources(self) -> list[Source]:
        return list(self.view.sources.values())

    def variable(self, side: Side, what: object) -> str:
        return quote(self.naming.aux_column(f"{side.value}_{what}"))

    def befores(self) -> list[str]:
        return [self.variable(Side.BEFORE, place) for place in range(len(self.sources))]

    def afters(self) -> list[str]:
        return [self.variable(Side.AFTER, place) for place in range(len(self.sources))]

    @property
    def times(self) -> list[str]:
        return [self.variable(side, "time") for side in Side]

    @property
    def app(self) -> str:
        return quote(self.naming.aux_column("app"))

    @property
    def sequence(self) -> str:
        return quote(self.naming.aux_column("sequence"))

    def declare(self) -> Iterator[str]:
        for name in (*self.befores(), *self.afters(), *self.times, self.sequence):
            yield f"DECLARE OR REPLACE VARIABLE {name} BIGINT"
        yield f"DECLARE OR REPLACE VARIABLE {self.app} STRING"

    def forget(self) -> Iterator[str]:
        names = (*self.befores(), *self.afters(), *self.times, self.sequence, self.app)
        for name in names:
            yield f"DROP TEMPORARY VARIABLE IF EXISTS {name}"

    def text(self, statement: str) -> str:
        """A statement with marks as an expression that gives its text."""
        pieces = MARK.split(statement)
        values = [
            quote(self.naming.aux_column(piece)) if place % 2 else _lines(piece)
            for place, piece in enumerate(pieces)
            if piece
        ]
        return f"concat({', '.join(values)})" if len(values) > 1 else values[0]

    def if_pending(self, statement: str) -> str:
        """Run it if there is something to do."""
        return (
            f"EXECUTE IMMEDIATE IF({self.afters()[0]} IS NULL, {NOTHING}, {self.text(statement)})"
        )

    def view_name(self, purpose: str) -> str:
        return quote(self.naming.aux_column(purpose))

    def kept(self, purpose: str, query: str) -> Iterator[str]:
        """A query's rows, computed once; a run that died may have left them."""
        yield f"DROP VIEW IF EXISTS {self.view_name(purpose)}"
        yield self.if_pending(f"CACHE TABLE {self.view_name(purpose)} AS\n{query}")

    def columns(self, alias: str = "") -> str:
        prefix = f"{alias}." if alias else ""
        return ", ".join(f"{prefix}{quote(name)}" for name in self.plan.columns)

    # Making

    def create_cursors_table(self) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.cursors} (\n"
            "    mv_name STRING NOT NULL,\n"
            "    source STRING NOT NULL,\n"
            "    last_version BIGINT NOT NULL,\n"
            "    pending_version BIGINT,\n"
            "    last_time TIMESTAMP NOT NULL,\n"
            "    pending_time TIMESTAMP,\n"
            "    app_id STRING NOT NULL,\n"
            "    sequence BIGINT NOT NULL\n) USING delta"
        )

    def create_mv(self) -> str:
        """An empty table of the view's columns, with a feed, so that other views may read it."""
        properties = ["'delta.enableChangeDataFeed' = 'true'"]
        if any(map(is_odd_column, self.plan.columns)):
            properties.append("'delta.columnMapping.mode' = 'name'")
        leaves = _Leaves(view=self.view, naming=self.naming, pinned=False)
        query = self.plan.result(Situation(leaves=leaves, moved=frozenset()))
        return (
            f"CREATE TABLE {self.mv} USING delta TBLPROPERTIES ({', '.join(properties)}) AS\n"
            f"SELECT * FROM ({query}) AS q WHERE FALSE"
        )

    def initialize(self) -> Iterator[str]:
        """Without cursors nobody maintains, so they go first and come last."""
        yield from self.unset_pair()
        yield from self.declare()
        for source, after in zip(self.sources, self.afters(), strict=True):
            table = literal(_name(source))
            yield NEWEST.format(table=table, variable=after)
            # Fails if the table has no feed.
            yield f"SET VAR {after} = ({self.newest(source, after)})"
        now = self.variable(Side.AFTER, "time")
        yield f"SET VAR {now} = unix_micros(current_timestamp())"
        yield f"SET VAR {self.app} = (SELECT uuid())"
        yield f"DELETE FROM {self.cursors} WHERE {self.mine}"
        load = f"INSERT OVERWRITE {self.mv}\n{self.plan.result(self.situation)}"
        yield f"EXECUTE IMMEDIATE {self.text(load)}"
        rows = ",\n    ".join(
            f"({literal(self.naming.mv_table())}, {literal(_name(source))}, {after}, "
            f"timestamp_micros({now}), {self.app}, 1)"
            for source, after in zip(self.sources, self.afters(), strict=True)
        )
        columns = "mv_name, source, last_version, last_time, app_id, sequence"
        yield f"INSERT INTO {self.cursors} ({columns}) VALUES\n    {rows}"
        yield from self.forget()

    # Keeping up

    def maintain(self) -> Iterator[str]:
        yield from self.unset_pair()  # a run that died may have left it
        yield from self.declare()
        yield from self.pin()
        purposes = []
        for name, query in self.feeds():
            yield from self.kept(name, query)
            purposes.append(name)
        rounded = rounded_columns(self.plan)
        if self.plan.key is not None or rounded:
            steps, merge = self.by_keys(rounded)
        else:
            steps, merge = self.by_rows()
        for name, query in steps:
            yield from self.kept(name, query)
            purposes.append(name)
        yield self.if_pending(f"SET {PAIR[0]} = {mark('app')}")
        yield self.if_pending(f"SET {PAIR[1]} = {mark('sequence')}")
        yield self.if_pending(merge)
        yield from self.unset_pair()
        yield self.promote()
        for purpose in purposes:
            yield f"DROP VIEW IF EXISTS {self.view_name(purpose)}"
        yield from self.forget()

    def unset_pair(self) -> Iterator[str]:
        for setting in PAIR:
            yield f"RESET {setting}"

    def pin(self) -> Iterator[str]:
        """From which version of each source to which; noted before anything is done about it."""
        yield self.read_cursors()
        newest = ",\n    ".join(
            f"coalesce({after}, ({self.newest(source, before)}))"
            for source, before, after in zip(
                self.sources, self.befores(), self.afters(), strict=True
            )
        )
        yield f"SET VAR ({', '.join(self.afters())}) = (\nSELECT {newest}\n)"
        versions = " ".join(
            f"WHEN {literal(_name(source))} THEN {after}"
            for source, after in zip(self.sources, self.afters(), strict=True)
        )
        moved = [f"{a} > {b}" for a, b in zip(self.afters(), self.befores(), strict=True)]
        moved += ["TRUE"] if self.timed else []
        yield (
            f"UPDATE {self.cursors} SET\n"
            f"    pending_version = CASE source {versions} END,\n"
            "    pending_time = current_timestamp()\n"
            f"WHERE {self.mine} AND pending_version IS NULL AND ({' OR '.join(moved)})"
        )
        yield self.read_cursors()

    def newest(self, source: Source, known: str) -> str:
        """The newest version that changed rows, from one that is known."""
        feed = f"table_changes({literal(_name(source))}, {known})"
        return f"SELECT coalesce(max(_commit_version), {known}) FROM {feed}"

    def read_cursors(self) -> str:
        """What the cursors say, all of them in one go."""
        names, values = [], []
        for source, before, after in zip(self.sources, self.befores(), self.afters(), strict=True):
            this = f"source = {literal(_name(source))}"
            names += [before, after]
            values += [f"max(last_version) FILTER (WHERE {this})"]
            values += [f"max(pending_version) FILTER (WHERE {this})"]
        names += [*self.times, self.app, self.sequence]
        values += ["unix_micros(max(last_time))", "unix_micros(max(pending_time))", "max(app_id)"]
        count = len(self.sources)
        message = f"{self.naming.mv_table()} has not one cursor for each source: {AGAIN}"
        complete = f"count(*) = {count} AND count(DISTINCT source) = {count}"
        values += [f"IF({complete}, max(sequence), raise_error({literal(message)}))"]
        listed = ",\n    ".join(values)
        return (
            f"SET VAR ({', '.join(names)}) = (\nSELECT {listed}\n"
            f"FROM {self.cursors} WHERE {self.mine}\n)"
        )

    def feeds(self) -> Iterator[tuple[str, str]]:
        """Each source's changes, read once: the columns that the view needs."""
        for place, (name, source) in enumerate(self.view.sources.items()):
            before, after = mark_at(Side.BEFORE, place), mark_at(Side.AFTER, place)
            read = [c for c in source.columns or () if c in self.plan.reads(name)]
            columns = ", ".join(map(quote, read)) or f"1 AS {NO_COLUMN}"
            # A range that starts after the newest version is an error, an empty one is not.
            feed = f"table_changes({literal(_name(source))}, least({before} + 1, {after}), {after})"
            signed = f"SELECT {columns}, {SIGN} AS {WEIGHT} FROM {feed}"
            purpose = f"feed_{name.rpartition('_')[2]}"
            yield purpose, f"{signed}\nWHERE _commit_version > {before}"

    def by_keys(self, rounded: tuple[str, ...]) -> tuple[list[tuple[str, str]], str]:
        """The rows of the affected keys as they are now against the stored ones."""
        keys = self.view_name("keys")
        affected = self.plan.affected(self.situation, rounded)
        assert affected is not None, "every source is taken to have changed"
        same = " AND ".join(
            f"v.{quote(name)} <=> k.{key_column(n)}"
            for n, name in enumerate(self.plan.exact_key_columns(rounded))
        )
        stored = f"{self.mv} AS v" + (f" LEFT SEMI JOIN {keys} AS k ON {same}" if same else "")
        counted = (
            f"SELECT {self.columns()}, 1 AS {HERE}, 0 AS {THERE} FROM {self.view_name('rows')}\n"
            f"UNION ALL\nSELECT {self.columns('v')}, 0, 1 FROM {stored}"
        )
        rows = self.plan.rows_of(self.situation, keys, rounded)
        return [("keys", affected), ("rows", rows)], self.merge(counted)

    def by_rows(self) -> tuple[list[tuple[str, str]], str]:
        """The signed rows by which the result changed."""
        changes = self.plan.changes(self.situation)
        assert changes is not None, "every source is taken to have changed"
        rows = self.view_name("rows")
        net = (
            f"SELECT {self.columns()}, SUM({WEIGHT}) AS {WEIGHT} FROM (\n{changes}\n)\n"
            f"GROUP BY {self.columns()} HAVING SUM({WEIGHT}) <> 0"
        )
        same = " AND ".join(f"v.{quote(n)} <=> d.{quote(n)}" for n in self.plan.columns)
        counted = (
            f"SELECT {self.columns()}, {WEIGHT} AS {HERE}, 0 AS {THERE} FROM {rows}\nUNION ALL\n"
            f"SELECT {self.columns('v')}, 1, 1 FROM {self.mv} AS v\n"
            f"LEFT SEMI JOIN {rows} AS d ON {same}"
        )
        return [("rows", net)], self.merge(counted)

    def merge(self, counted: str) -> str:
        """Exactly as many copies as there should be, in one commit.

        More copies wanted: insert those that miss. Fewer: delete all, insert as many as are wanted.
        """
        lacking = f"{self.naming.mv_table()} lacks rows that are to go: {AGAIN}"
        steps = (
            f"CASE WHEN {HERE} < 0 THEN raise_error({literal(lacking)})\n"
            f"    WHEN {HERE} > {THERE} THEN array_repeat('I', CAST({HERE} - {THERE} AS INT))\n"
            f"    ELSE concat(array('D'), array_repeat('I', CAST({HERE} AS INT))) END"
        )
        same = " AND ".join(f"t.{quote(n)} <=> s.{quote(n)}" for n in self.plan.columns)
        return (
            f"MERGE INTO {self.mv} AS t USING (\n"
            f"SELECT explode({steps}) AS {OPERATION}, {self.columns()} FROM (\n"
            f"SELECT {self.columns()}, SUM({HERE}) AS {HERE}, SUM({THERE}) AS {THERE} FROM (\n"
            f"{counted}\n) GROUP BY {self.columns()} HAVING SUM({HERE}) <> SUM({THERE}))\n"
            f") AS s ON s.{OPERATION} = 'D' AND {same}\n"
            "WHEN MATCHED THEN DELETE\n"
            f"WHEN NOT MATCHED AND s.{OPERATION} = 'I' THEN\n"
            f"    INSERT ({self.columns()}) VALUES ({self.columns('s')})"
        )

    def promote(self) -> str:
        """What was pending is done; whoever did it first moved the number on."""
        return (
            f"UPDATE {self.cursors} SET\n"
            "    last_version = pending_version, pending_version = NULL,\n"
            "    last_time = pending_time, pending_time = NULL,\n"
            "    sequence = sequence + 1\n"
            f"WHERE {self.mine} AND pending_version IS NOT NULL AND sequence = {self.sequence}"
        )
