"""A lake on a Spark that has a configuration of its own, from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynamic_tables.lake import embedded, jars
from dynamic_tables.settings import load_settings

pytestmark = pytest.mark.spark


def configured(folder: Path) -> None:
    """As administrators do it, with Delta; settings that make small sessions start faster."""
    found = ",".join(jars.cached_jars(load_settings({})))
    lines = {
        "spark.master": "local[2]",
        "spark.jars": found,
        "spark.driver.extraJavaOptions": embedded.QUICK_JVM,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
        **embedded.ON_THIS_MACHINE,
    }
    folder.mkdir()
    text = "".join(f"{key} {value}\n" for key, value in lines.items())
    (folder / "spark-defaults.conf").write_text(text, encoding="utf-8")


def test_a_warehouse_outlives_the_process(tmp_path: Path) -> None:
    """One process declares, the next one finds everything again and refreshes what is due."""
    configured(tmp_path / "conf")
    flags = ["--warehouse", f"file:{tmp_path}/wh", "--store", f"sqlite:///{tmp_path}/store.db"]

    def run(*arguments: str) -> str:
        program = [str(Path(sys.executable).with_name("dynamic-tables")), *flags, *arguments]
        surroundings = {**os.environ, "SPARK_CONF_DIR": str(tmp_path / "conf")}
        done = subprocess.run(
            program, env=surroundings, capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(
        "sql",
        "CREATE TABLE orders (k INT, v INT) USING delta;"
        "INSERT INTO orders VALUES (1, 1), (1, 2), (2, 3);"
        "CREATE DYNAMIC TABLE sums TRIGGER ON CHANGE AS"
        " SELECT k, sum(v) AS s, count(v) AS c, count(*) AS n FROM orders GROUP BY k;"
        "INSERT INTO orders VALUES (2, 4)",
    )
    assert (tmp_path / "wh" / "orders" / "_delta_log").is_dir()
    (record,) = json.loads(run("run", "--once", "--json"))
    assert (record["strategy"], record["rows_inserted"]) == ("merge", 1)
    assert "sums" in run("list", "--json")
