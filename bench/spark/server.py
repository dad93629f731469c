"""The servers that Spark reads and writes: a cluster, a standalone node, Apache Kafka, with their processes by role."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench.fanout.fleet import cpu_seconds, fleet
from bench.generator import GeneratorFailed
from bench.process import MeasuredProcess
from bench.system import Gnomon, Kafka, System
from bench.workspace import Workspace

CLUSTER, STANDALONE, KAFKA = "cluster", "standalone", "Apache Kafka"
BROKERS = 2
READY_SECONDS = 180.0
ASK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SparkServer:
    """A started system."""

    name: str
    bootstrap: str
    roles: Mapping[str, Sequence[MeasuredProcess]]
    """The processes whose processor time is counted, apart for each role: brokers, bookies."""

    def cpu_seconds(self) -> dict[str, float]:
        """The processor time of each role so far."""
        return {role: cpu_seconds(list(processes)) for role, processes in self.roles.items()}


@contextmanager
def cluster(workspace: Workspace) -> Iterator[SparkServer]:
    """The metadata, three bookies, two brokers, for the block."""
    with fleet(workspace, BROKERS) as served:
        ports = [broker.ready()["kafka"].rpartition(":")[2] for broker in served.brokers]
        bookies = [process for name, process in served.server.members.items() if name.startswith("bookie-")]
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        yield SparkServer(CLUSTER, bootstrap, {"brokers": served.brokers, "bookies": bookies})


@contextmanager
def standalone(workspace: Workspace) -> Iterator[SparkServer]:
    """One node for the block."""
    with _program(workspace, STANDALONE, Gnomon()) as server:
        yield server


@contextmanager
def kafka(workspace: Workspace) -> Iterator[SparkServer]:
    """Apache Kafka with its defaults for the block. Raises GeneratorUnavailable if this machine lacks something."""
    with _program(workspace, KAFKA, Kafka(workspace.cache)) as server:
        yield server


@contextmanager
def _program(workspace: Workspace, name: str, system: System) -> Iterator[SparkServer]:
    started = system.install(workspace).start()
    try:
        _await_answer(started.bootstrap, started.process)
        yield SparkServer(name, started.bootstrap, {"brokers": [started.process]})
    finally:
        started.kill()


def _await_answer(bootstrap: str, process: MeasuredProcess) -> None:
    admin, deadline = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), time.monotonic() + READY_SECONDS
    while process.alive and time.monotonic() < deadline:
        try:
            if admin.list_topics(timeout=ASK_SECONDS).brokers:
                return
        except KafkaException:
            pass  # it does not listen yet
    raise GeneratorFailed(f"the server was not ready: {process.log_tail()}")
