"""A real broker with two listeners, and real clients on each."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from gnomon.testing.daemon import Daemon

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PROTOCOLS = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"
SECONDS = 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_client_of_each_listener_produces_and_consumes_at_its_own_addresses(tmp_path: Path) -> None:
    # The name outside resolves to another address than the one inside, as clients of the other listener would see.
    inside, outside = free_port(), free_port()
    words = (
        *("standalone", "--data-dir", tmp_path / "data", "--native-port", "0", "--admin-port", "0"),
        *("--durability", "none", "--set", f"listener.security.protocol.map={PROTOCOLS}"),
        *("--set", f"listeners=INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}"),
        *("--set", f"advertised.listeners=INSIDE://127.0.0.1:{inside},OUTSIDE://localhost:{outside}"),
    )
    daemon = Daemon(words, tmp_path / "log", {}, None)
    try:
        ready = daemon.wait_ready().ready
        assert ready["kafka"] == f"127.0.0.1:{inside}"
        assert ready["listeners"] == f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}"
        for host, port in [("127.0.0.1", inside), ("localhost", outside)]:
            at = {"bootstrap.servers": f"127.0.0.1:{port}"}
            brokers = AdminClient(at).list_topics(timeout=SECONDS).brokers
            assert {(one.host, one.port) for one in brokers.values()} == {(host, port)}
            admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
            assert [(one["host"], one["port"]) for one in admin.describe_cluster()["brokers"]] == [(host, port)]
            admin.close()
            producer = Producer(at)
            producer.produce("t", f"through {port}".encode())
            assert producer.flush(SECONDS) == 0
        consumer = Consumer(
            {"bootstrap.servers": f"localhost:{outside}", "group.id": "g", "auto.offset.reset": "smallest"}
        )
        consumer.subscribe(["t"])
        read = [str((consumer.poll(SECONDS) or pytest.fail("no record")).value(), "ascii") for _ in range(2)]
        assert read == [f"through {inside}", f"through {outside}"]
        consumer.close()
    finally:
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--set", "listeners=SSL://:9093"), "listener SSL asks for SSL: TLS and SASL are not built yet"),
        (("--set", "listeners=PLAINTEXT://:0", "--kafka-port", "0"), "both say where Kafka clients connect"),
        (("--set", "advertised.listeners=PLAINTEXT://0.0.0.0:9092"), "no address that clients can connect to"),
        (("--set", "listeners=localhost:9092"), "no address of the form NAME://HOST:PORT"),
    ],
)
def test_listeners_that_cannot_be_served_end_the_command_with_2_and_one_line(
    inside: Run, tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    done = inside("standalone", "--data-dir", tmp_path / "data", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert problem in done.stderr
    assert not (tmp_path / "data").exists()
