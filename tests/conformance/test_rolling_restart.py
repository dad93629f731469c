"""A cluster is restarted process by process; clients with default settings see no effect except latency."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_broker import ClusterBroker
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from families.aim import SETTINGS

HERE = Path(__file__).parent
PARTITIONS = 6
SECONDS_TO_SETTLE = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterBroker]:
    with ClusterBroker(tmp_path, SETTINGS) as cluster:
        yield cluster


def create(cluster: ClusterBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        created.result()


class Librdkafka:
    """A producer and a consumer, and the answers and errors that they got."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self.errors: list[str] = []
        self.slowest_seconds = 0.0
        self._bootstrap, self._topic = bootstrap, topic
        self._stopping, self._answered = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Stops producing; returns after every record is answered and read."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        producer, number = Producer({"bootstrap.servers": self._bootstrap}), 0
        while not self._stopping.is_set():
            begun, value = time.monotonic(), b"%d" % number

            def delivered(error: object, _: object, begun: float = begun, value: bytes = value) -> None:
                if error is None:
                    self.acknowledged.add(value)
                else:
                    self.errors.append(f"producer: {error}")
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - begun)

            producer.produce(self._topic, value, on_delivery=delivered)
            producer.poll(0.005)
            number += 1
        producer.flush(SECONDS_TO_SETTLE)
        self._answered.set()

    def _consume(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": self._topic, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe([self._topic])
        deadline = float("inf")
        while time.monotonic() < deadline and not (self._answered.is_set() and self.consumed >= self.acknowledged):
            if self._answered.is_set():
                deadline = min(deadline, time.monotonic() + SECONDS_TO_SETTLE)
            message = consumer.poll(0.1)
            if message is not None and message.error():
                self.errors.append(f"consumer: {message.error()}")
            elif message is not None:
                self.consumed.add(message.value())
        consumer.close()


def test_librdkafka_sees_no_error(cluster: ClusterBroker) -> None:
    create(cluster, "rolled")
    clients = Librdkafka(cluster.bootstrap_servers, "rolled")
    try:
        cluster.restart_all()
    finally:
        clients.finish()
    print(f"{len(clients.acknowledged)} records, the slowest after {clients.slowest_seconds:.2f} s")
    assert clients.errors == []
    assert clients.consumed == clients.acknowledged
    assert len(clients.acknowledged) > 100


@pytest.fixture
def asked_java(request: pytest.FixtureRequest) -> list[str]:
    """The command that runs a program on Kafka's jars; precedes `cluster`, so that a skipped test starts no cluster."""
    if not request.config.getoption("--all-clients"):
        pytest.skip("Java is asked with --all-clients")
    java: list[str] = request.getfixturevalue("java")
    return java


def test_java_sees_no_error(asked_java: list[str], cluster: ClusterBroker) -> None:
    create(cluster, "rolled")
    program = [*asked_java, str(HERE / "java" / "Stream.java"), cluster.bootstrap_servers, "rolled"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        assert stream.stdout.readline() == "begun\n"
        try:
            cluster.restart_all()
        finally:
            written, _ = stream.communicate("end\n", timeout=2 * SECONDS_TO_SETTLE)
    print(written)
    found = re.fullmatch(r"acknowledged (\d+) consumed (\d+) slowest (\d+)\n", written)
    assert found, written
    assert int(found[1]) == int(found[2]) > 100
