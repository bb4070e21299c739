"""Row-group order over Spark Connect, where nothing reaches into the JVM.

Its client needs gRPC and pandas, which nothing else does, so it is a long run with packages of its
own: `.venv/bin/python -m pip install 'pyspark[connect]==4.2.0' 'pandas<3'`, then
`.venv/bin/python -m pytest -m soak tests/spark/test_rorder_connect.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import dynamic_tables as dt

pytestmark = [pytest.mark.spark, pytest.mark.soak]
CLIENT = Path(__file__).with_name("over_connect.py")


def test_native_works_over_spark_connect(shared: dt.DynamicTables, tmp_path: Path) -> None:
    """`shared` has seen to it that Delta's jars are there."""
    assert find_spec("grpc"), "pip install 'pyspark[connect]==4.2.0' 'pandas<3'"
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
