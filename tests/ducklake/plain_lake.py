"""DuckLake catalogs on a plain DuckDB connection: what a user of `compile_ivm` has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
from duckdb_extensions import import_extension

import dynamic_tables as dt


class Lake:
    """A plain connection with DuckLake catalogs attached."""

    def __init__(self, folder: Path, database: duckdb.DuckDBPyConnection) -> None:
        self.folder = folder
        self.catalogs: list[str] = []
        self.connection = database.cursor()
        self.attach("dl")
        self.run("USE dl")

    def close(self) -> None:
        self.connection.close()  # and with it what is open in its transaction

    def attach(self, catalog: str) -> None:
        self.catalogs.append(catalog)
        place = self.folder / f"{catalog}.ducklake"
        self.run(
            f"ATTACH 'ducklake:{place}' AS \"{catalog}\" (DATA_PATH '{self.folder / 'files'}')"
        )

    def run(self, *statements: str) -> list[Any]:
        rows: list[Any] = []
        for statement in statements:
            rows = self.connection.execute(statement).fetchall()
        return rows

    def make(self, plan: dt.IVMPlan) -> dt.IVMPlan:
        self.run(plan.create_cursors_table, plan.create_mv, *plan.initialize_cursors)
        return plan

    def compiled(self, query: str, **options: Any) -> dt.IVMPlan:
        return self.make(dt.compile_ivm(query, **options))

    def check(self, plan: dt.IVMPlan, mv: str = "dl.main.mv") -> Counter[str]:
        """The table equals the view, as a bag."""
        maintained = bag(self.run(f"FROM {mv}"))
        assert maintained == bag(self.run(plan.view_sql)), plan.view_sql
        return maintained

    def maintain(self, plan: dt.IVMPlan, mv: str = "dl.main.mv") -> Counter[str]:
        self.run(*plan.maintain)
        return self.check(plan, mv)

    def snapshots(self, catalog: str = "dl") -> int:
        return self.run(f"SELECT count(*) FROM ducklake_snapshots('{catalog}')")[0][0]


def bag(rows: list[Any]) -> Counter[str]:
    """Rows as a bag; a SUM of integers is stored as DECIMAL(38,0)."""

    def plain(value: Any) -> Any:
        whole = isinstance(value, Decimal) and value == value.to_integral_value()
        return int(value) if whole else value

    return Counter(repr(tuple(map(plain, row))) for row in rows)


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB for many lakes: loading the extension takes longer than attaching a lake."""
    import_extension("ducklake")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("LOAD ducklake")
        yield connection


@contextmanager
def attached(folder: Path, connection: duckdb.DuckDBPyConnection) -> Iterator[Lake]:
    lake = Lake(folder, connection)
    try:
        yield lake
    finally:
        lake.close()
        for catalog in lake.catalogs:
            connection.execute(f'DETACH "{catalog}"')
