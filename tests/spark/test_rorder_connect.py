"""Row-group order over Spark Connect, where nothing reaches into the JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import dynamic_tables as dt

pytestmark = pytest.mark.spark
CLIENT = Path(__file__).with_name("over_connect.py")


def test_native_works_over_spark_connect(shared: dt.DynamicTables, tmp_path: Path) -> None:
    """`shared` has seen to it that Delta's jars are there."""
    done = subprocess.run(
        [sys.executable, CLIENT, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "engine": "native",
        "same_rows": True,
        "changes": 0,
        "row_groups": 20,
        "values": list(range(20)),
        "settings_changed": ["spark.databricks.delta.lastCommitVersionInSession"],  # by Delta
        "no_such_column": "InvalidInput BAD_COLUMNS",
        "cached": "Refused CONTRADICTION",
        "arrow": "SetupError CONNECT_UNSUPPORTED",
    }
