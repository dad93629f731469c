from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gnomon.cli.kafka.partition_sizes import partition_sizes
from gnomon.testing import KafkaBroker


@contextmanager
def server(answer: bytes) -> Iterator[tuple[str, int]]:
    """A server that reads a request, sends these bytes and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        thread.join()


def test_a_broker_reports_only_the_partitions_that_it_has(broker: KafkaBroker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    assert partition_sizes(host, int(port), "there-is-none", [0]) == {}


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0\0\4", b"\x7f\0\0\0\0\0\0\1", b"\xff\0\0\0\0\0\0\1", b"\0\0\0\6\0\0\0\1xx"]
)
def test_an_answer_that_cannot_be_read_is_an_error(answer: bytes) -> None:
    with server(answer) as (host, port), pytest.raises(OSError, match="broker"):
        partition_sizes(host, port, "t", [0])
