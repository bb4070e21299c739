"""The generated SQL, as files to read; compared with what is generated now, and executed.

`GOLDEN_UPDATE=1 bash scripts/test tests/golden` writes the files anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from plain_lake import Lake, attached, database

import dynamic_tables as dt

FOLDER = Path(__file__).parent
QUERIES = {
    "filter": "SELECT id, amount * 2 AS twice FROM orders WHERE amount > 10",
    "aggregate": (
        "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"
    ),
    "total": "SELECT count(*) AS n, max(amount) AS most FROM orders",
    "having": "SELECT customer FROM orders GROUP BY customer HAVING count(*) > 1",
    "join": "SELECT o.id, c.name FROM orders AS o JOIN customers AS c ON o.customer = c.id",
    "outer_join": (
        "SELECT c.name, o.amount FROM customers AS c LEFT JOIN orders AS o ON o.customer = c.id"
    ),
    "join_aggregate": (
        "SELECT c.name, sum(o.amount) AS total FROM orders AS o "
        "JOIN customers AS c ON o.customer = c.id GROUP BY c.name"
    ),
    "join_two_keys": (
        "SELECT c.name, o.customer, max(o.amount) AS most FROM orders AS o "
        "JOIN customers AS c ON o.customer = c.id GROUP BY c.name, o.customer"
    ),
    "self_join": (
        "SELECT a.id AS one, b.id AS other FROM orders AS a "
        "JOIN orders AS b ON a.customer = b.customer AND a.id < b.id"
    ),
    "exists": (
        "SELECT c.name FROM customers AS c "
        "WHERE NOT EXISTS (SELECT 1 FROM orders AS o WHERE o.customer = c.id)"
    ),
    "not_in": "SELECT c.name FROM customers AS c WHERE c.id NOT IN (SELECT customer FROM orders)",
    "union": "SELECT customer AS id FROM orders UNION SELECT id FROM customers",
    "except": "SELECT id FROM customers EXCEPT SELECT customer FROM orders",
    "window": (
        "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY amount, id) AS place "
        "FROM orders"
    ),
    "clock": "SELECT id FROM orders WHERE due > current_date",
}
HOMES = {
    "duckdb": {"mv_catalog": "dl", "mv_schema": "main"},
    "spark": {"mv_catalog": "spark_catalog", "mv_schema": "default"},
}
CHANGES = (
    "INSERT INTO orders VALUES (4, 5, 11, '2200-01-01'), (4, 5, 11, '2200-01-01'), (5, NULL, 1, NULL)",  # noqa: E501
    "UPDATE orders SET customer = 7 WHERE id = 1",
    "DELETE FROM orders WHERE customer = 5; DELETE FROM customers WHERE id = 5",
)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with database() as connection:
        yield connection


@pytest.fixture
def lake(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> Iterator[Lake]:
    with attached(tmp_path, connection) as lake:
        lake.run(
            "CREATE TABLE orders (id INT, customer INT, amount INT, due DATE)",
            "CREATE TABLE customers (id INT, name VARCHAR)",
            "INSERT INTO orders VALUES (1, 5, 10, '2000-01-01'), (2, 5, 20, '2200-01-01'), "
            "(3, 7, 30, NULL), (3, 7, 30, NULL)",
            "INSERT INTO customers VALUES (5, 'Ann'), (7, 'Bob'), (9, NULL), (NULL, 'Nobody')",
        )
        yield lake


def generated(name: str) -> str:
    """A view and how it is maintained in each dialect; an empty line after every statement."""
    parts = [f"-- view\n{QUERIES[name]};"]
    for dialect, home in HOMES.items():
        plan = dt.compile_ivm(QUERIES[name], dialect=dialect, **home)
        parts.append(f"-- {dialect}\n" + "\n\n".join(f"{text};" for text in plan.maintain))
    return "\n\n".join(parts) + "\n"


def statements(text: str, part: str) -> list[str]:
    """The statements of one part of a file."""
    section = text.partition(f"-- {part}\n")[2].partition("\n\n-- ")[0].rstrip()
    return [statement.removesuffix(";") for statement in section.split(";\n\n")]


def golden(name: str) -> Path:
    return FOLDER / f"{name}.sql"


@pytest.mark.parametrize("name", QUERIES)
def test_the_files_show_what_is_generated(name: str) -> None:
    if os.environ.get("GOLDEN_UPDATE"):
        golden(name).write_text(generated(name), encoding="utf-8")
    assert golden(name).read_text(encoding="utf-8") == generated(name)


def test_no_file_is_left_over() -> None:
    assert {file.stem for file in FOLDER.glob("*.sql")} == set(QUERIES)


@pytest.mark.parametrize("name", QUERIES)
def test_the_files_run(name: str, lake: Lake) -> None:
    maintain = statements(golden(name).read_text(encoding="utf-8"), "duckdb")
    plan = lake.compiled(QUERIES[name])
    for change in CHANGES:
        lake.run(change, *maintain)
        lake.check(plan)
