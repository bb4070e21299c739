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
from dynamic_tables.connect import STORE_FILE

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


def test_change_plan_refresh(demo: str, dt: Run) -> None:
    dt("sql", "UPDATE shop.customers SET region = 'moon' WHERE id = 1")
    planned = json.loads(dt("plan", "--json").stdout)
    assert len(planned) == 4
    assert any(row["detail"] == "changed: shop.customers" for row in planned)
    report = json.loads(dt("refresh", "--json").stdout)
    assert {record["outcome"] for record in report["tables"]} == {"done"}
    records = json.loads(dt("history", "--limit", "4", "--json").stdout)
    assert {record["refresh_id"] for record in records} == {report["refresh_id"]}


def test_errors_of_spark_are_one_line(demo: str, dt: Run) -> None:
    failed = dt("sql", "SELECT 1/0", code=2).stderr
    assert "DIVIDE_BY_ZERO" in failed
    assert "\tat " not in failed, "no stack traces of Java on the terminal"


def test_doctor_finds_and_mends_a_lost_store(demo: str, dt: Run, lake: Path) -> None:
    for file in lake.glob(f"{STORE_FILE}*"):
        file.unlink()
    assert "[STORE_MISSING]" in dt("list", code=2).stderr
    restored = json.loads(dt("doctor", "--rebuild", "--json").stdout)["restored"]
    assert len(restored) == 4
    assert all(item["ok"] for item in json.loads(dt("verify", "--json").stdout))
