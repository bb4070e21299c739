"""`dynamic-tables demo`: a small shop, a graph with a diamond, and what a refresh does to it.

Every statement that is shown is the one that runs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from dynamic_tables.app import DynamicTables
from dynamic_tables.connect import connect
from dynamic_tables.errors import InvalidInput, RefreshError
from dynamic_tables.reasons import Reason
from dynamic_tables.render import (
    ProgressLine,
    console,
    frame_table,
    graph_tree,
    plan_table,
    records_table,
    seconds,
    sql_text,
    verification_text,
)
from dynamic_tables.settings import Settings

SHOP = (
    "CREATE SCHEMA shop",
    """
CREATE TABLE shop.customers USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)
AS SELECT id, concat('customer ', id) AS name,
          element_at(array('north', 'south', 'east', 'west'), CAST(id % 4 + 1 AS INT)) AS region
   FROM range(1, 41)""",
    """
CREATE TABLE shop.orders USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)
AS SELECT id, id * 7 % 40 + 1 AS customer_id,
          date_add(DATE'2025-01-01', CAST(id % 30 AS INT)) AS day
   FROM range(1, 301)""",
    """
CREATE TABLE shop.items USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)
AS SELECT id % 300 + 1 AS order_id, concat('product ', id % 12) AS product,
          id % 3 + 1 AS quantity, CAST(5 + id * 13 % 90 AS DECIMAL(10,2)) AS price
   FROM range(900)""",
)

TABLES = (
    """
CREATE DYNAMIC TABLE shop.order_totals
AS SELECT o.id AS order_id, o.customer_id, sum(i.quantity * i.price) AS total
   FROM shop.orders o JOIN shop.items i ON i.order_id = o.id
   GROUP BY o.id, o.customer_id""",
    """
CREATE DYNAMIC TABLE shop.sales_by_region
AS SELECT c.region, count(*) AS orders, sum(t.total) AS revenue
   FROM shop.order_totals t JOIN shop.customers c ON c.id = t.customer_id
   GROUP BY c.region""",
    """
CREATE DYNAMIC TABLE shop.top_customers
AS SELECT c.id, c.name, c.region, sum(t.total) AS revenue
   FROM shop.order_totals t JOIN shop.customers c ON c.id = t.customer_id
   GROUP BY c.id, c.name, c.region
   ORDER BY revenue DESC, c.id LIMIT 10""",
    """
CREATE DYNAMIC TABLE shop.region_report
AS SELECT s.region, s.orders, s.revenue, n.customers, max_by(t.name, t.revenue) AS best_customer
   FROM shop.sales_by_region s
   JOIN (SELECT region, count(*) AS customers FROM shop.customers GROUP BY region) n
     ON n.region = s.region
   LEFT JOIN shop.top_customers t ON t.region = s.region
   GROUP BY s.region, s.orders, s.revenue, n.customers""",
)

CHANGES = (
    "INSERT INTO shop.orders VALUES (301, 3, DATE'2025-02-01')",
    "INSERT INTO shop.items VALUES (301, 'product 7', 40, 99.00)",
    "UPDATE shop.customers SET region = 'south' WHERE id = 3",
    "DELETE FROM shop.orders WHERE id = 42",
)
LATER = "UPDATE shop.customers SET region = 'west' WHERE id = 4"
REPORT = "SELECT * FROM shop.region_report ORDER BY region"


def run_demo(settings: Settings, *, keep: Path | None = None) -> None:
    """The whole demo, in a temporary lake or in the folder to keep."""
    _check_empty(keep)
    with _folder(keep) as folder:
        values = {**settings.values, "store": "", "jvm": "quick"}
        started = time.monotonic()
        show = Show(console(sys.stdout), console(sys.stderr))
        show.say(f"A shop with customers, orders and items, in {folder}", style="bold")
        with show.opened(folder, replace(settings, values=values)) as tables:
            _story(tables, show)
        show.say(f"\nDone in {seconds(time.monotonic() - started)}.", style="bold")
        _next_steps(show, keep)


def _check_empty(keep: Path | None) -> None:
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise InvalidInput(
            "the folder is not empty",
            reason=Reason.ALREADY_EXISTS,
            about=str(keep),
            hint=f"name a new folder: dynamic-tables demo --keep {keep}-2",
        )


@contextmanager
def _folder(keep: Path | None) -> Generator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(
        prefix="dynamic-tables-demo-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


class Show:
    """Says what happens next, shows the statement, runs it, shows what came of it."""

    def __init__(self, out: Console, err: Console) -> None:
        self.out, self._err = out, err
        self._chapter = 0
        self._tables: DynamicTables | None = None

    @contextmanager
    def opened(self, folder: Path, settings: Settings) -> Generator[DynamicTables]:
        with self._waiting("starting Spark"):
            tables = connect(folder, settings=settings, say=self.say)
        with tables:
            self._tables = tables
            yield tables

    @contextmanager
    def _waiting(self, doing: str) -> Generator[None]:
        line = ProgressLine(self._err if self._err.is_terminal else None)
        try:
            if self._tables is None:
                line.say(doing)
            else:
                line.watch(self._tables, doing)
            yield
        finally:
            line.stop()

    def say(self, text: str, style: str = "") -> None:
        self.out.print(text, style=style)

    def chapter(self, title: str) -> None:
        self._chapter += 1
        self.out.print(Text(f"\n{self._chapter}. {title}", style="bold cyan"))

    def run(self, statement: str) -> Any:
        """Show a statement and run it."""
        self.out.print(sql_text(statement))
        return self.quietly("working", lambda tables: tables.sql(statement))

    def quietly(self, doing: str, work: Any) -> Any:
        assert self._tables is not None
        with self._waiting(doing):
            return work(self._tables)

    def rows(self, statement: str) -> None:
        frame = self.run(statement)
        rows = self.quietly("reading", lambda _: frame.collect())
        self.out.print(frame_table(frame.columns, rows))


def _story(tables: DynamicTables, show: Show) -> None:
    _load(tables, show)
    _change_and_refresh(show)
    _alone_and_with_upstream(show)
    _verify(tables, show)


def _load(tables: DynamicTables, show: Show) -> None:
    show.chapter("Three base tables")
    for statement in SHOP:
        show.run(statement)
    show.chapter("Four dynamic tables, each declared by a query and loaded at once")
    for statement in TABLES:
        show.run(statement)
    show.say("\nThe graph: the report reads two tables that read the same one, a diamond.")
    states = {state.definition.table_id: state for state in tables.list()}
    show.out.print(graph_tree(tables.graph(), states))
    show.rows(REPORT)


def _change_and_refresh(show: Show) -> None:
    show.chapter("The shop goes on: a new order, a customer moves, an order is deleted")
    for statement in CHANGES:
        show.run(statement)
    show.say("\nWhat would a refresh do, and why? (dynamic-tables plan)")
    show.out.print(plan_table(show.quietly("planning", lambda tables: tables.plan())))
    show.say("\nRefresh everything: all tables at one cut. (dynamic-tables refresh)")
    report = show.quietly("refreshing", lambda tables: tables.refresh())
    show.out.print(records_table(report.records))
    show.say(
        "Tables that others read commit only the rows that differ; `read` is the cut: which version"
        "\nof each source the rows come from. Parents and children agree on it."
    )
    show.rows(REPORT)


def _alone_and_with_upstream(show: Show) -> None:
    show.chapter("One table alone: it reads what its parents read")
    show.run(LATER)
    report = show.run("REFRESH DYNAMIC TABLE shop.region_report")
    show.out.print(records_table(report.records))
    show.say(
        "shop.customers has a newer version, but the tables below the report have not seen it."
        "\nMixing both would give a report that never was true. With its upstream, all move on:"
    )
    report = show.run("REFRESH DYNAMIC TABLE shop.region_report WITH UPSTREAM")
    show.out.print(records_table(report.records))


def _verify(tables: DynamicTables, show: Show) -> None:
    show.chapter("Is it right? Every table against its query (dynamic-tables verify)")
    wrong = []
    for state in tables.list():
        name = state.definition.name
        verified = show.quietly("verifying", lambda tables, name=name: tables.verify(name.sql))
        show.out.print(verification_text(verified))
        wrong += [] if verified.ok else [str(name)]
    if wrong:
        raise RefreshError(
            "the demo found a table that differs from its query",
            reason=Reason.INTERNAL,
            about=", ".join(wrong),
            hint="please report this",
        )


def _next_steps(show: Show, keep: Path | None) -> None:
    if keep is None:
        show.say("Keep the lake and try for yourself:  dynamic-tables demo --keep ./shop")
    lake = f"--lake {keep or './shop'}"
    show.say(f"Then:  dynamic-tables {lake} graph")
    show.say(f"       dynamic-tables {lake} show shop.region_report")
    show.say(f'       dynamic-tables {lake} sql "{REPORT}"')
    show.say(f"       dynamic-tables {lake} history shop.region_report")
