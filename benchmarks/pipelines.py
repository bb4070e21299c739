"""Pipelines: what a run of Spark Declarative Pipelines costs, against recomputing by hand.

The aggregate of `change_size` as a materialized view of a pipeline, on Delta. Rows come, and the
pipeline is run again; in turn the same query is written by INSERT OVERWRITE, which is `recompute`
in the other benchmarks. Both run on one Spark Connect server that stays alive between runs. Told
are a whole run of the command and the part of it in which the server works (from the first event
of the run to the last).

It needs packages that nothing else here does: pip install 'pyspark[connect,pipelines]' 'pandas<3'.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median

import pyspark
from common import arguments, report

from dynamic_tables.lake.jars import cached_jars
from dynamic_tables.settings import load_settings

QUERY = "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM fact GROUP BY k"
SHARE = 0.0001  # of the rows, that come before each run
PATIENCE_S = 120.0
STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)?: ")
SPECIFICATION = """
name: one
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def server(folder: Path) -> Generator[str]:
    """A Spark Connect server with Delta; its address."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "6g",
        "spark.jars": ",".join(cached_jars(load_settings())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    named = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(submit), "--class", main, *named, "spark-internal"]
    with (folder / "server.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield _answering(port, running, folder / "server.log")
    finally:
        running.terminate()
        running.wait()


def _answering(port: int, running: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and running.poll() is None:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return f"sc://127.0.0.1:{port}"
        time.sleep(0.5)
    raise RuntimeError(f"the server did not come: {log.read_text()[-2000:]}")


def run(folder: Path, remote: str) -> tuple[float, float]:
    """The pipeline once: seconds of the command, and between its first and last event."""
    command = shutil.which("spark-pipelines", path=str(Path(sys.executable).parent))
    assert command is not None, "pip install 'pyspark[connect,pipelines]' 'pandas<3'"
    begun = time.perf_counter()
    done = subprocess.run(
        [command, "--remote", remote, "run"],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    said = done.stdout + done.stderr
    assert "Run is COMPLETED" in said, said[-3000:]
    stamps = [datetime.fromisoformat(stamp) for stamp in STAMP.findall(said)]
    return seconds, (max(stamps) - min(stamps)).total_seconds()


def measure(folder: Path, rows: int, keys: int, rounds: int) -> str:
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415  not in the pinned set

    (folder / "transformations").mkdir()
    (folder / "spark-pipeline.yml").write_text(SPECIFICATION.format(folder=folder))
    view = f"CREATE MATERIALIZED VIEW in_pipeline USING delta AS {QUERY}"
    (folder / "transformations" / "view.sql").write_text(view)
    recomputed, commands, inside = [], [], []
    with server(folder) as remote:
        spark = SparkSession.builder.remote(remote).create()
        rows_of = f"id, pmod(xxhash64(id), {keys}) AS k, pmod(id * 7919, 10007) AS v"
        spark.sql(f"CREATE TABLE fact USING delta AS SELECT {rows_of} FROM range({rows})")
        spark.sql(f"CREATE TABLE whole USING delta AS {QUERY}")
        for number in range(rounds + 1):  # the first makes the view, and warms up
            start = 10**10 + number * 10**8
            new = f"range({start}, {start + round(rows * SHARE)})"
            spark.sql(f"INSERT INTO fact SELECT {rows_of} FROM {new}")
            begun = time.perf_counter()
            spark.sql(f"INSERT OVERWRITE whole {QUERY}")
            seconds = time.perf_counter() - begun
            command, worked = run(folder, remote)
            if number:
                recomputed.append(seconds)
                commands.append(command)
                inside.append(worked)
        same = "SELECT count(*), sum(n), sum(s), sum(m) FROM {}"
        assert (
            spark.sql(same.format("in_pipeline")).collect()
            == spark.sql(same.format("whole")).collect()
        )
    base = median(recomputed)
    ways = {
        "recompute (INSERT OVERWRITE)": base,
        "a run of the pipeline, the command": median(commands),
        "a run of the pipeline, the server's part": median(inside),
    }
    lines = [f"| {way} | {s:.1f} | {s / base:.2f} |" for way, s in ways.items()]
    return "\n".join(["| way | median s | ratio |", "|---|---|---|", *lines])


def main() -> None:
    wanted = arguments(__doc__, rows=20_000_000)
    rows, keys = (400_000, 20_000) if wanted.quick else (wanted.rows, 1_000_000)
    folder = Path(tempfile.mkdtemp(prefix="dynamic-tables-benchmark-"))
    try:
        text = measure(folder, rows, keys, rounds=1 if wanted.quick else 3)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(f"Pipelines: {rows:,} rows, {keys:,} keys", text, save=wanted.save)


if __name__ == "__main__":
    main()
