"""A cluster of several brokers with a source topic, and with shadows of that topic at other brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lmdb
from confluent_kafka.admin import AdminClient, NewTopic

from bench.child import Child
from bench.cluster import ClusterServer
from bench.generator import GeneratorFailed
from bench.process import MeasuredProcess
from bench.workspace import Workspace

ADMIN_SECONDS = 60.0
LEADER_SECONDS = 30.0
PROBE_PARTITIONS = 64
"""The partitions of the probed topic: with this many, every broker leads at least one."""
_CPU_CLOCK = 2
"""The clock of a process, in ns; /proc counts in ticks of 10 ms."""


@dataclass(frozen=True, slots=True)
class TopicLeader:
    """The leader of a topic's only partition."""

    topic: str
    broker: MeasuredProcess
    kafka_port: int
    native: str

    @property
    def native_port(self) -> int:
        return int(self.native.rpartition(":")[2])


class Fleet:
    """One metadata service, three bookies, some brokers; all end with its block."""

    def __init__(self, workspace: Workspace, brokers: int, settings: Mapping[str, str]) -> None:
        self.directory = workspace.data_dir("fleet")
        self.server = ClusterServer(self.directory, 0, settings)
        try:
            for number in range(2, brokers + 1):
                self.server.start_broker(number)
            self._admin = AdminClient({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        except BaseException:
            self.server.kill()
            raise

    @property
    def brokers(self) -> list[MeasuredProcess]:
        return [process for name, process in self.server.members.items() if name.startswith("broker-")]

    @property
    def storage(self) -> list[MeasuredProcess]:
        """The metadata and the bookies."""
        return [process for name, process in self.server.members.items() if not name.startswith("broker-")]

    def create(self, source: str, shadows: int) -> list[TopicLeader]:
        """Creates a topic with one partition and its shadows; returns the leader of each, the source first."""
        names = [source, *(f"{source}-shadow-{number + 1}" for number in range(shadows))]
        self._create(NewTopic(source, num_partitions=1, replication_factor=-1))
        for name in names[1:]:
            told = {"gnomon.shadow.source": source}
            self._create(NewTopic(name, num_partitions=1, replication_factor=-1, config=told))
        return [self._place(name) for name in names]

    def beside(self, place: TopicLeader) -> tuple[str, int]:
        """A topic's partition with the same leader, to measure the effect on other producers."""
        name = f"{place.topic}-beside"
        self._create(NewTopic(name, num_partitions=PROBE_PARTITIONS, replication_factor=-1))
        wanted = int(place.broker.ready()["id"])
        leaders = self._leaders(name)
        return name, leaders.index(wanted)

    def _create(self, topic: NewTopic) -> None:
        for created in self._admin.create_topics([topic], request_timeout=ADMIN_SECONDS).values():
            created.result()

    def _leaders(self, topic: str) -> list[int]:
        deadline = time.monotonic() + LEADER_SECONDS
        while time.monotonic() < deadline:
            partitions = self._admin.list_topics(topic, timeout=ADMIN_SECONDS).topics[topic].partitions
            leaders = [partitions[number].leader for number in sorted(partitions)]
            if leaders and min(leaders) >= 0:
                return leaders
            time.sleep(0.1)
        raise GeneratorFailed(f"topic {topic} has no leader")

    def _place(self, topic: str) -> TopicLeader:
        broker = self.server.members[f"broker-{self._leaders(topic)[0]}"]
        ready = broker.ready()
        return TopicLeader(topic, broker, int(ready["kafka"].rpartition(":")[2]), ready["native"])

    def child(self, program: str, task: Mapping[str, object]) -> Child:
        """Starts a load program."""
        return Child(f"fanout.{program}", task, self.directory / f"{program}.log")

    def pacer(self, place: TopicLeader, **task: object) -> Child:
        """Starts to produce to the leader of a place, or to the topic `beside` it, after its first answer."""
        usual = {"topic": place.topic, "partition": 0, "port": place.kafka_port}
        child = self.child("pacer", {**usual, **task})
        child.answer(LEADER_SECONDS)
        return child

    def check(self) -> None:
        """Raises GeneratorFailed if a process has ended."""
        for name, process in self.server.members.items():
            if not process.alive:
                raise GeneratorFailed(f"{name} ended: {process.log_tail()}")

    def stored_bytes(self) -> int:
        """The size of keys and values in the stores of all bookies, whose processes have ended."""
        return sum(_stored_bytes(path) for path in sorted(self.directory.glob("bookie-*/")))


def cpu_seconds(processes: list[MeasuredProcess]) -> float:
    """The processor time of processes so far."""
    return sum(time.clock_gettime((~process.pid << 3) | _CPU_CLOCK) for process in processes)


def anonymous_bytes(processes: list[MeasuredProcess]) -> int:
    """The anonymous memory of processes."""
    return sum(process.memory().anonymous for process in processes)


def _stored_bytes(directory: Path) -> int:
    total = 0
    for file in sorted(directory.rglob("data.mdb")):
        with lmdb.open(str(file.parent), readonly=True, lock=False, max_dbs=64) as environment:
            with environment.begin() as txn:
                names = [bytes(key) for key, _ in txn.cursor()]
            for name in names:
                database = environment.open_db(name, create=False)
                with environment.begin(db=database) as txn:
                    total += sum(len(key) + len(value) for key, value in txn.cursor())
    return total


@contextmanager
def fleet(workspace: Workspace, brokers: int, settings: Mapping[str, str] | None = None) -> Iterator[Fleet]:
    """A started fleet for the block; its data are removed with it."""
    started = Fleet(workspace, brokers, settings or {})
    try:
        yield started
        started.check()
    finally:
        started.server.kill()
