"""Row-group order by a real Spark on an object store: an emulator of S3 on loopback.

Spark's file system for S3 is downloaded from Maven Central (hadoop-aws and some modules of Amazon's
SDK, 20 MB), which nothing else needs, so it is a long run:
`bash scripts/test -m soak -s tests/spark/test_rorder_s3.py`.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from threading import Thread

import pytest
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

import dynamic_tables as dt

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(0)]
DRIVER = Path(__file__).with_name("on_s3.py")


@pytest.fixture
def endpoint() -> Iterator[str]:
    """An S3 with one bucket, at a port that is free."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    s3_backends["123456789012"]["aws"].create_bucket("lake", "us-east-1")
    yield f"http://{host}:{port}"
    server.stop()


class Forbidding(BaseHTTPRequestHandler):
    """A store that allows nothing, as to somebody whose credentials are not its own."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def forbidden() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Forbidding)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def nobody() -> str:
    """An address that nobody listens at."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def on_loopback(endpoint: str) -> dict[str, str]:
    """Whatever asks for Amazon asks the emulator, for credentials too."""
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "something",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint,
        "NO_PROXY": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def test_both_engines_work_on_an_object_store(
    shared: dt.DynamicTables, tmp_path: Path, endpoint: str, forbidden: str, nobody: str
) -> None:
    """`shared` has seen to it that Delta's jars are there."""
    done = subprocess.run(
        [sys.executable, DRIVER, tmp_path, nobody, forbidden],
        stdout=subprocess.PIPE,
        text=True,
        env=on_loopback(endpoint),
        check=True,
    )
    same = {"same_rows": True, "same_answers": True, "changes": 0}
    refused = {"reason": "NO_PERMISSION", "names_native": True, "untouched": True}
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "unreachable": {**refused, "cause": ["NETWORK_CONNECTION"]},
        "forbidden": {**refused, "cause": ["ACCESS_DENIED"]},
        "native": {**same, "engine": "native", "row_groups": 28, "widest": 2},
        "arrow": {**same, "engine": "arrow", "row_groups": 20, "widest": 0},
        "again": None,  # all of it is in order
        "meanwhile": {"became": ["changed", "ordered"], "came": 10, "went": 1},
        "dynamic": {"rows": 6, "same_rows": True},
    }
