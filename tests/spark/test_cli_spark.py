"""The command line on Spark: the demo, and what a user does with the lake that it leaves.

Every verb and option is tested on the small lake (tests/ducklake), where a call costs no JVM.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dynamic_tables.cli import program
from dynamic_tables.connect import STORE_FILE, connect
from dynamic_tables.definition import Definition
from dynamic_tables.model import Build

pytestmark = pytest.mark.spark

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli") / "shop"


@pytest.fixture(scope="module")
def dt(lake: Path) -> Run:
    def run(*arguments: str, code: int = 0, **extra: Any) -> Result:
        flags = ["--lake", str(lake), "--jvm", "quick"]
        result = CliRunner(env={"COLUMNS": "160"}).invoke(program, [*flags, *arguments], **extra)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture(scope="module")
def demo(dt: Run, lake: Path) -> str:
    """What the demo prints; its lake stays for the tests below."""
    return dt("demo", "--keep", str(lake)).stdout


def test_demo(demo: str, lake: Path) -> None:
    assert demo.count("equals its query") == 4
    assert "shop.customers has version" in demo
    assert "NET_EMPTY" in demo
    assert (lake / STORE_FILE).exists()


def test_errors_of_spark_are_one_line(demo: str, dt: Run) -> None:
    failed = dt("sql", "SELECT 1/0", code=2).stderr
    assert "DIVIDE_BY_ZERO" in failed
    assert "\tat " not in failed, "no stack traces of Java on the terminal"


def standing(lake: Path) -> dict[str, tuple[Definition, Build | None]]:
    """What the store knows of each table, history aside."""
    with connect(lake, jvm="quick") as tables:
        return {str(s.definition.name): (s.definition, s.build) for s in tables.list()}


def _number(build: Build | None) -> int:
    return build.sequence if build else 0


def test_a_lost_store_is_rebuilt_and_refreshes_go_on(demo: str, dt: Run, lake: Path) -> None:
    """Definitions, options and states come back from the lake; the next number is the next one."""
    dt("alter", "shop.region_report", "--comment", "by region", "--target-lag", "5 minutes")
    dt(
        "create",
        "shop.later",
        "--query",
        "SELECT id FROM shop.orders",
        "--initialize",
        "ON_SCHEDULE",
    )
    before = standing(lake)
    for file in lake.glob(f"{STORE_FILE}*"):
        file.unlink()
    assert "[STORE_MISSING]" in dt("list", code=2).stderr
    restored = json.loads(dt("doctor", "--rebuild", "--json").stdout)["restored"]
    assert len(restored) == len(before) == 5
    assert json.loads(dt("doctor", "--rebuild", "--json").stdout)["restored"] == []
    after = standing(lake)
    assert after["shop.region_report"] == before["shop.region_report"]
    for name, (definition, build) in before.items():  # a cut that took no commit is forgotten
        assert (after[name][0], _number(after[name][1])) == (definition, _number(build))

    dt("sql", "UPDATE shop.customers SET region = 'moon' WHERE id = 1")
    planned = json.loads(dt("plan", "--json").stdout)
    row = next(row for row in planned if row["table"] == "shop.sales_by_region")
    assert (row["detail"], row["rows"]) == ("changed: shop.customers", 2)
    told = dt("explain", "shop.sales_by_region").stdout
    for cost in row["estimates"]:
        assert f"{cost['strategy']} {cost['seconds']:.1f} s" in told
    assert {cost["storage"] for cost in row["storages"]} == {"IN_PLACE", "MERGE_ON_READ"}
    assert "MERGE_ON_READ: refreshed in" in told
    assert "shop.sales_by_region: MERGE_ON_READ: refreshed in" in dt("plan").stdout
    report = json.loads(dt("refresh", "--json").stdout)
    records = {record["table"]: record for record in report["tables"]}
    assert {record["outcome"] for record in records.values()} == {"done"}
    assert records["shop.later"]["action"] == "initialize"
    number = _number(before["shop.region_report"][1])
    assert records["shop.region_report"]["sequence"] == number + 1
    history = json.loads(dt("history", "--limit", "5", "--json").stdout)
    assert {record["refresh_id"] for record in history} == {report["refresh_id"]}
    assert all(item["ok"] for item in json.loads(dt("verify", "--json").stdout))
