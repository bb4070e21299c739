"""TPC-H as a life: its 22 queries are dynamic tables, its refresh functions change the sources.

Data and queries come from DuckDB's `tpch` extension. A tenth of the orders a round is held back and
comes as refresh function 1 does; refresh function 2 deletes as many old ones; besides, some rows of
every table are updated, also in the columns that the queries filter, join and group by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension
from lives import bag

import dynamic_tables as dt

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
SCALAR = {"q11", "q15", "q22"}  # an uncorrelated scalar decides about every row: once it changed,
# they are recomputed. All others may never be, not even where it would be cheaper.
ROUNDS = 5


def generated(folder: Path, *, scale: float) -> dict[str, str]:
    """The tables as Parquet files in a folder, and the 22 queries by name."""
    import_extension("tpch")
    with duckdb.connect() as db:
        db.execute("SET threads = 1")
        db.execute("LOAD tpch")
        db.execute(f"CALL dbgen(sf = {scale})")
        for table in TABLES:
            db.execute(f"COPY {table} TO '{folder / table}.parquet'")
        found = db.execute("SELECT query_nr, query FROM tpch_queries()").fetchall()
    return {f"q{number}": _endless(query) for number, query in found}


def _endless(query: str) -> str:
    """Without its LIMIT, and with a name for every column."""
    text = query.strip().removesuffix(";")
    text = re.sub(r"\s+LIMIT \d+$", "", text)
    return re.sub(r"sum\(l_quantity\)(?=\nFROM)", "sum(l_quantity) AS quantity", text)


def read_by(queries: Iterable[str]) -> tuple[str, ...]:
    """The tables that some queries name."""
    return tuple(t for t in TABLES if any(re.search(rf"\b{t}\b", query) for query in queries))


def load(tables: dt.DynamicTables, folder: Path, read: Iterable[str], *, spark: bool) -> None:
    for table in read:
        file = folder / f"{table}.parquet"
        source = f"parquet.`{file}`" if spark else f"read_parquet('{file}')"
        feed = " USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)" if spark else ""
        if table in ("orders", "lineitem"):
            key = _key(table)
            for name, kept in ((table, f"{_part(key)} >= {ROUNDS}"), (f"later_{table}", "TRUE")):
                rows = f"SELECT * FROM {source} WHERE {kept}"
                tables.sql(f"CREATE TABLE {name}{feed} AS {rows}")
        else:
            tables.sql(f"CREATE TABLE {table}{feed} AS SELECT * FROM {source}")


def _key(table: str) -> str:
    return "o_orderkey" if table == "orders" else "l_orderkey"


def _part(key: str) -> str:
    """Order keys are sparse: eight follow each other, then come 24 that are not used."""
    return f"CAST(floor({key} / 32) AS INT) % 10"


def statements(number: int, read: Iterable[str]) -> Iterator[str]:
    """The changes of a round, for the tables that are read."""
    for statement in _all_statements(number):
        if re.match(r"(?:INSERT INTO|DELETE FROM|UPDATE) (\w+)", statement)[1] in read:
            yield statement


def _all_statements(number: int) -> Iterator[str]:
    """Both refresh functions, and updates of every table."""
    for table in ("orders", "lineitem"):
        mine = f"{_part(_key(table))} = {number}"
        yield f"INSERT INTO {table} SELECT * FROM later_{table} WHERE {mine}"
    for table in ("orders", "lineitem"):
        yield f"DELETE FROM {table} WHERE {_part(_key(table))} = {ROUNDS + number % 5}"
    names = ("EUROPE", "ASIA", "AMERICA", "AFRICA", "MIDDLE EAST")
    yield f"UPDATE region SET r_comment = 'round {number}'"
    yield f"UPDATE nation SET n_regionkey = (n_regionkey + 1) % 5 WHERE n_nationkey % 9 = {number}"
    yield f"UPDATE region SET r_name = '{names[number % 5]}' WHERE r_regionkey = {(number + 3) % 5}"
    yield (
        "UPDATE supplier SET s_acctbal = s_acctbal + 1, s_nationkey = (s_nationkey + 4) % 25,"
        f" s_comment = 'Customer Complaints {number}' WHERE s_suppkey % 7 = {number}"
    )
    yield (
        "UPDATE customer SET c_acctbal = c_acctbal + 500, c_mktsegment = 'BUILDING'"
        f" WHERE c_custkey % 23 = {number}"
    )
    yield (
        "UPDATE part SET p_brand = 'Brand#23', p_container = 'MED BOX', p_size = 15,"
        f" p_type = 'SMALL BRASS', p_name = 'forest green' WHERE p_partkey % 31 = {number}"
    )
    yield (
        "UPDATE partsupp SET ps_supplycost = ps_supplycost - 1, ps_availqty = ps_availqty + 7"
        f" WHERE ps_partkey % 37 = {number}"
    )
    yield (
        "UPDATE orders SET o_orderpriority = '1-URGENT', o_orderdate = DATE '1993-08-01'"
        f" WHERE o_orderkey % 41 = {number}"
    )
    yield (
        "UPDATE lineitem SET l_quantity = l_quantity + 1, l_shipdate = DATE '1996-02-01'"
        f" WHERE l_orderkey % 43 = {number}"
    )


class Business:
    """The 22 dynamic tables and what happens to them."""

    def __init__(self, tables: dt.DynamicTables, queries: dict[str, str]) -> None:
        self._tables = tables
        self._queries = queries
        self._read = read_by(queries.values())
        self.moved: set[str] = set()  # queries whose rows changed by changes
        for name, query in queries.items():
            mode = "AUTO" if name in SCALAR else "INCREMENTAL"
            tables.create(name, query, initialize="ON_SCHEDULE", refresh_mode=mode)
        tables.refresh()
        self.check()

    def round(self, number: int) -> dict[str, str]:
        """Change, refresh, compare; the strategies."""
        for statement in statements(number, self._read):
            self._tables.sql(statement)
        report = self._tables.refresh()
        self.check()
        strategies = {record.table.name: str(record.strategy) for record in report.records}
        self.moved |= {name for name, way in strategies.items() if way not in ("no_data", "full")}
        return strategies

    def check(self) -> None:
        for name, query in self._queries.items():
            wanted = bag(self._tables.sql(query).collect())
            found = bag(self._tables.sql(f"SELECT * FROM {name}").collect())
            assert found == wanted, f"{name}: missing {wanted - found}, extra {found - wanted}"
