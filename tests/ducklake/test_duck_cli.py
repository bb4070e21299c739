"""The command line: one lake for all tests, in the order of a user's day."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dynamic_tables.cli import program
from dynamic_tables.connect import STORE_FILE

SETUP = """
-- a comment; with a semicolon
CREATE TABLE orders (id INT, customer STRING, amount DECIMAL(10,2));
INSERT INTO orders VALUES (1, 'ann;bob', 5), (2, 'ann;bob', 6), (3, NULL, 7);
SELECT * FROM orders ORDER BY id
"""
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli") / "lake"


@pytest.fixture(scope="module")
def dt(lake: Path) -> Run:
    def run(*arguments: str, code: int = 0, **extra: Any) -> Result:
        flags = ["--lake", f"ducklake:{lake}"]
        result = CliRunner(env={"COLUMNS": "160"}).invoke(program, [*flags, *arguments], **extra)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture(scope="module")
def shop(dt: Run) -> Run:
    """A base table and two dynamic tables, made from the command line alone."""
    data = json.loads(dt("sql", "-f", "-", "--json", input=SETUP).stdout)
    assert [item.get("columns") for item in data] == [None, None, ["id", "customer", "amount"]]
    assert data[2]["rows"][0] == [1, "ann;bob", "5.00"]
    query = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
    flags = ("--target-lag", "5 minutes", "--json")
    created = json.loads(dt("create", "totals", "--query", query, *flags).stdout)
    assert (created["did"], created["refresh"][0]["reason"]) == ("created", "FIRST_LOAD")
    assert "totals" in dt("sql", "CREATE DYNAMIC TABLE big AS SELECT * FROM totals").stdout
    return dt


def test_plan_refresh_and_history(shop: Run) -> None:
    shop("sql", "INSERT INTO orders VALUES (4, 'carl', 100)")
    planned = json.loads(shop("plan", "--json").stdout)
    assert [row["table"] for row in planned] == ["main.totals", "main.big"]
    assert planned[0]["detail"] == "changed: main.orders"
    shown = shop("refresh", "big").stdout
    assert "NOT_MOVED" in shown
    report = json.loads(shop("refresh", "big", "--upstream", "--json").stdout)
    assert [record["outcome"] for record in report["tables"]] == ["done", "done"]
    records = json.loads(shop("history", "totals", "--limit", "1", "--json").stdout)
    assert [record["refresh_id"] for record in records] == [report["refresh_id"]]
    assert "FIRST_LOAD" in shop("history").stdout


def test_list_graph_and_show(shop: Run) -> None:
    listed = json.loads(shop("list", "--json").stdout)
    assert [table["table"] for table in listed] == ["main.big", "main.totals"]
    assert "5 minutes" in shop("list").stdout
    edges = json.loads(shop("graph", "--json").stdout)["edges"]
    assert {"from": "main.totals", "to": "main.big"} in edges
    lines = shop("graph").stdout.splitlines()
    assert [line.split(" @")[0] for line in lines] == [
        "main.orders",
        "└── main.totals",
        "    └── main.big",
    ]
    shop("sql", "INSERT INTO orders VALUES (5, 'dora', 1)")
    shown = json.loads(shop("show", "totals", "--json").stdout)
    assert shown["newest"]["main.orders"] > shown["reads"]["main.orders"]
    text = shop("show", "totals").stdout
    assert "target_lag = 5 minutes" in text
    assert "(newest: " in text
    assert "SELECT customer, sum(amount)" in text


def test_explain(shop: Run) -> None:
    explained = json.loads(shop("explain", "totals", "--json").stdout)
    assert explained["strategies"]["full"] == "possible"
    assert "AT (VERSION" in explained["pinned_sql"]
    assert "id INTEGER" in shop("explain", "SELECT id FROM orders").stdout


def test_sql_prints_rows_and_our_objects(shop: Run) -> None:
    assert "the first 1 rows" in shop("sql", "SELECT * FROM orders", "--rows", "1").stdout
    assert "main.big" in shop("sql", "SHOW DYNAMIC TABLES; DESCRIBE DYNAMIC TABLE big").stdout
    assert "FORCED" in shop("sql", "REFRESH DYNAMIC TABLE totals FULL").stdout
    failed = shop("sql", "SELECT CAST('x' AS INT)", code=2).stderr
    assert "Conversion Error" in failed
    assert "\tat " not in failed, "no stack traces of Java on the terminal"


def test_alter_suspend_and_optimize(shop: Run) -> None:
    assert "altered" in shop("alter", "totals", "--cardinality-threshold=0.5").stdout
    assert "unchanged" in shop("alter", "totals", "--cardinality-threshold=0.5").stdout
    assert "altered" in shop("alter", "totals", "--unset", "CARDINALITY_THRESHOLD").stdout
    assert "optimized" in shop("optimize", "totals").stdout
    shop("suspend", "totals")
    assert "[SUSPENDED]" in shop("refresh", "totals", code=4).stderr
    assert "resumed" in shop("resume", "totals").stdout


def test_a_failing_table(shop: Run) -> None:
    flags = ("--initialize", "ON_SCHEDULE")
    shop(
        "create",
        "broken",
        "--query",
        "SELECT CAST(concat('x', id) AS INT) AS n FROM orders",
        *flags,
    )
    failed = shop("refresh", "broken", "--json", code=3)
    assert json.loads(failed.stdout)["tables"][0]["reason"] == "QUERY_FAILED"
    assert "Conversion Error" in json.loads(failed.stderr)["error"]
    shop("drop", "broken")


def test_verify_tells_right_from_wrong(shop: Run) -> None:
    shop("refresh")
    assert all(item["ok"] for item in json.loads(shop("verify", "--json").stdout))
    shop("sql", "DELETE FROM totals WHERE customer = 'carl'")
    wrong = shop("verify", code=3).stdout
    assert "main.totals" in wrong
    assert "1 rows missing, 0 unexpected" in wrong
    assert "carl" in wrong
    assert "✓ main.big" in wrong
    assert "FOREIGN_CHANGE" in shop("refresh").stdout
    shop("verify")


def test_doctor_finds_and_mends_a_lost_store(shop: Run, lake: Path) -> None:
    assert json.loads(shop("doctor", "--json").stdout)["ok"]
    for file in lake.glob(f"{STORE_FILE}*"):
        file.unlink()
    sick = shop("list", code=2).stderr
    assert "[STORE_MISSING]" in sick
    restored = json.loads(shop("doctor", "--rebuild", "--json").stdout)["restored"]
    assert restored == ["main.totals", "main.big"]
    shop("verify")


def test_drop(shop: Run) -> None:
    assert "[HAS_CHILDREN]" in shop("drop", "totals", code=4).stderr
    dropped = json.loads(shop("drop", "totals", "--cascade", "--json").stdout)
    assert dropped == {"dropped": ["main.big", "main.totals"]}
    assert "there was none" in shop("drop", "totals", "--if-exists").stdout
    assert "[UNKNOWN_TABLE]" in shop("drop", "totals", code=2).stderr
