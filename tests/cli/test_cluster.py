from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from gnomon.testing.etcd_server import etcd_missing
from gnomon.testing.ledger_processes import wait_until

Run = Callable[..., "subprocess.CompletedProcess[str]"]
LINE = re.compile(
    r"ready kafka=(?P<kafka>[\d.:]+,[\d.:]+) native=[\d.:]+,[\d.:]+ admin=(?P<admin>[\d.:]+,[\d.:]+)"
    r" metadata=(?P<metadata>[\w/.:]+)\n"
)


class Up:
    """`gnomon cluster up`, once it is ready."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gnomon.cli.main", "cluster", "up", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = LINE.fullmatch(line)
        if found is None:
            pytest.fail(line + self.process.communicate()[1])
        self.kafka, self.admin, self.metadata = found["kafka"], found["admin"].split(","), found["metadata"]

    def children(self) -> list[psutil.Process]:
        """Also theirs."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, name: str) -> int:
        """The process id of the child that was started with these words."""
        (found,) = (child for child in self.children() if name in " ".join(child.cmdline()))
        return int(found.pid)

    def end(self) -> tuple[int, str, str]:
        self.process.terminate()
        stdout, stderr = self.process.communicate(timeout=60)
        return self.process.returncode, stdout, stderr


@contextmanager
def up(*options: str) -> Iterator[Up]:
    cluster = Up(*options)
    try:
        yield cluster
    finally:
        cluster.process.kill()
        cluster.process.communicate()


def produce(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    failures = []
    for number in range(count):
        producer.produce("flights", str(number), on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(60) == 0
    assert failures == []


def consume(bootstrap: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("flights", 0, 0)])
    try:
        values: list[str] = []

        def all_there() -> bool:
            values.extend(message.value().decode() for message in consumer.consume(100, 1.0) if message.error() is None)
            return len(values) >= count

        wait_until(all_there, f"{count} records are read")
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", ["embedded", "etcd"])
def test_a_cluster_starts_with_one_line_serves_kafka_s_clients_and_stops_as_one(
    tmp_path: Path, kind: str, inside: Run
) -> None:
    if kind == "etcd" and etcd_missing():
        pytest.skip(f"NOT TESTED ON ETCD: {etcd_missing()}")
    options = ("--metadata", kind, "--data-dir", str(tmp_path / "data"))
    for round_ in range(2):  # the second time on what the first has stored
        with up(*options) as cluster:
            assert cluster.metadata.startswith("etcd://") == (kind == "etcd")
            if round_ == 0:
                produce(cluster.kafka, 10)
            assert consume(cluster.kafka, 10) == [str(number) for number in range(10)]
            for admin in cluster.admin:
                with urllib.request.urlopen(f"http://{admin}/readyz?verbose") as page:
                    assert page.read() == b"[+]metadata ok\n[+]registration ok\nready\n"
            listed = inside("bookie", "list", "--metadata", cluster.metadata).stdout
            assert listed.count("alive") == 3
            children = cluster.children()
            assert len(children) == (7 if kind == "etcd" else 6)
            code, stdout, stderr = cluster.end()
            assert (code, stdout, stderr) == (0, "", "stopped\n")
            assert not any(child.is_running() for child in children)


def test_a_child_that_dies_ends_the_cluster_and_is_named(tmp_path: Path) -> None:
    with up("--brokers", "2", "--bookies", "1") as cluster:
        children = cluster.children()
        os.kill(cluster.child("--name bookie-1"), signal.SIGKILL)
        _, stderr = cluster.process.communicate(timeout=60)
        assert cluster.process.returncode == 1
        assert "Error: bookie-1 was killed by SIGKILL" in stderr
        assert not any(child.is_running() for child in children)


def test_the_children_of_a_cluster_that_is_killed_end_too() -> None:
    with up("--brokers", "2", "--bookies", "1") as cluster:
        children = cluster.children()
        cluster.process.kill()
        wait_until(lambda: not any(child.is_running() for child in children), "the children end")


def test_what_a_child_could_not_start_for_is_said(inside: Run, gnomon: Run, tmp_path: Path) -> None:
    with up("--brokers", "2", "--bookies", "1", "--data-dir", str(tmp_path / "data")):
        second = gnomon("cluster", "up", "--data-dir", tmp_path / "data")
        assert (second.returncode, second.stdout, second.stderr.count("\n")) == (5, "", 1), second.stderr
        assert "metadata ended with 5: data directory" in second.stderr


def test_a_broker_says_what_it_needs(inside: Run) -> None:
    assert "give --metadata" in inside("broker", "--id", 1).stderr
    odd = inside("broker", "--metadata", "127.0.0.1:1", "--set", "broker_service.ack_quorum=4")
    assert (odd.returncode, odd.stderr.count("\n")) == (2, 1)
