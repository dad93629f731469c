from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable

import pytest

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.kafka import kafka_client
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def listener() -> socket.socket:
    """A server that accepts connections and reads nothing."""
    return socket.create_server(("127.0.0.1", 0))


def where(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_port_of_another_protocol_is_reported_at_once(inside: Run, broker: KafkaBroker) -> None:
    for port in (broker.admin_port, broker.native_port):
        done = inside("topic", "list", "--bootstrap-server", f"127.0.0.1:{port}")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith(
            f"Error: no broker answers at 127.0.0.1:{port} "
            "(the program at that address does not speak Kafka's protocol): "
        )
        assert done.stderr.count("\n") == 1


def test_one_kafka_address_among_several_is_enough(inside: Run, broker: KafkaBroker) -> None:
    addresses = f"127.0.0.1:{broker.admin_port},{broker.bootstrap_servers}"
    assert inside("topic", "list", "--bootstrap-server", addresses).returncode == 0


def test_a_server_that_closes_without_an_answer_is_no_broker(listener: socket.socket) -> None:
    def close_one() -> None:
        listener.accept()[0].close()

    closing = threading.Thread(target=close_one)
    closing.start()
    with pytest.raises(Failure, match="no broker answers at") as failed:
        kafka_client.reach(where(listener))
    closing.join()
    assert failed.value.code == Exit.UNREACHABLE


def test_a_note_is_printed_while_a_server_does_not_answer_yet(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka_client, "TOLD_SECONDS", 0.05)
    kafka_client.reach(where(listener))
    assert capsys.readouterr().err == f"no answer yet from {where(listener)}: waiting, about 15 s\n"
