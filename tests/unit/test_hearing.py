"""Answers of the JVM are acknowledged at once, where the connection lets us."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from dynamic_tables.lake.jvm import hear_at_once


def spark(client: Any) -> Any:
    return SimpleNamespace(_jvm=SimpleNamespace(_gateway_client=client))


def test_a_connection_without_threads_of_its_own_is_left_alone() -> None:
    hear_at_once(spark(object()))  # PYSPARK_PIN_THREAD=false


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux alone holds words back")
def test_lines_come_as_before_and_the_stream_is_wrapped_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
        with here, there:
            connection = SimpleNamespace(stream=here.makefile("rb"), socket=here)
            client = SimpleNamespace(get_thread_connection=lambda: connection)
            hear_at_once(spark(client))
            wrapped = connection.stream
            hear_at_once(spark(client))
            assert connection.stream is wrapped
            there.sendall(b"yes\n")
            assert wrapped.readline() == b"yes\n"
            wrapped.close()
