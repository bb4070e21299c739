"""`kill -9` at every step, then go on: nothing is lost, nothing is doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest
from harness import check_lake, run_victim

import dynamic_tables as dt
from dynamic_tables.steps import Step

pytestmark = pytest.mark.spark

KINDS = ("python", "jvm", "both")
CREATE_STEPS = (Step.DEFINED, Step.LAID_OUT)
REFRESH_STEPS = tuple(step for step in Step if step not in CREATE_STEPS)
QUERY = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dt.DynamicTables]]:
    """One lake for all victims: `metrics` is written by difference, `plain` whole."""
    folder = tmp_path_factory.mktemp("crash") / "lake"
    tables = dt.connect(folder, jvm="quick", say=lambda _: None)
    tables.sql("CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2)) USING delta")
    tables.sql("INSERT INTO orders VALUES (1, 1, 5), (2, 1, 6), (3, NULL, 7)")
    tables.create("metrics", QUERY)
    tables.create("plain", "SELECT customer, amount FROM orders WHERE amount > 5")
    tables.create("child", "SELECT count(*) AS customers FROM metrics")
    yield folder, tables
    tables.close()


def survive(lake: tuple[Path, dt.DynamicTables], step: Step, kind: str, table: str) -> None:
    """Kill a refresh of one table; a fresh process goes on and the equation holds."""
    folder, tables = lake
    tables.sql("INSERT INTO orders SELECT max(id) + 1, max(id) % 3, max(id) FROM orders")
    run_victim(folder, f"REFRESH DYNAMIC TABLE {table}", step.value, kind)
    tables.sql("INSERT INTO orders SELECT max(id) + 1, max(id) % 3, max(id) FROM orders")
    tables.refresh(table)
    check_lake(tables)


@pytest.mark.parametrize(
    ("step", "kind", "table"),
    [
        pytest.param(step, kind, table, id=f"{step}-{kind}-{table}")
        for step, kind, table in zip(
            REFRESH_STEPS, cycle(KINDS), cycle(["metrics", "plain"]), strict=False
        )
    ],
)
def test_refresh_survives(
    lake: tuple[Path, dt.DynamicTables], step: Step, kind: str, table: str
) -> None:
    survive(lake, step, kind, table)


@pytest.mark.parametrize(("step", "kind"), [*zip(CREATE_STEPS, ("both", "python"), strict=True)])
def test_create_survives(lake: tuple[Path, dt.DynamicTables], step: Step, kind: str) -> None:
    """The declaration stands; the next refresh loads the table."""
    folder, tables = lake
    name = f"made_{step.value}"
    run_victim(folder, f"CREATE DYNAMIC TABLE {name} AS {QUERY}", step.value, kind)
    report = tables.refresh(name)
    assert report[name].action == "initialize"
    check_lake(tables)
    tables.drop(name)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", REFRESH_STEPS)
def test_refresh_survives_whole_matrix(
    lake: tuple[Path, dt.DynamicTables], step: Step, kind: str
) -> None:
    """`metrics` is written by difference, `plain` whole; both see every step and every kind."""
    table = "plain" if kind == "jvm" else "metrics"
    survive(lake, step, kind, table)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", list(Step))
def test_create_survives_whole_matrix(
    open_lake: Callable[..., dt.DynamicTables], tmp_path: Path, step: Step, kind: str
) -> None:
    tables = open_lake()
    tables.sql("CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2)) USING delta")
    tables.sql("INSERT INTO orders VALUES (1, 1, 5), (2, 1, 6), (3, NULL, 7)")
    run_victim(tmp_path / "lake", f"CREATE DYNAMIC TABLE made AS {QUERY}", step.value, kind)
    tables.refresh()
    check_lake(tables)
