"""A topic of the bench: made, filled, counted, and written to at a steady rate."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.child import Child
from bench.generator import GeneratorFailed
from bench.spark.scale import PARTITIONS, SMALL_BYTES
from bench.spark.server import SparkServer

ADMIN_SECONDS = 60.0
FLUSH_SECONDS = 600.0
PRODUCER = {"linger.ms": 20, "batch.size": 64 << 10, "queue.buffering.max.messages": 500_000}
"""librdkafka's batches have 64 KiB, as in the other benchmarks."""
NOISE_BYTES = 1 << 20
FRAMES_PER_SECOND = 100
"""Requests a second for each partition of a topic that is fed."""
_names = itertools.count()


@dataclass(frozen=True, slots=True)
class SparkTopic:
    """A topic of a server."""

    server: SparkServer
    name: str
    partitions: int

    @classmethod
    def create(cls, server: SparkServer, kind: str, partitions: int = PARTITIONS) -> SparkTopic:
        """A new topic, with the server's number of copies; its name is invented."""
        made = cls(server, f"{kind}-{next(_names)}", partitions)
        new = NewTopic(made.name, num_partitions=partitions, replication_factor=-1)
        admin = made._admin()  # it has to outlive its requests
        admin.create_topics([new], request_timeout=ADMIN_SECONDS)[made.name].result()
        made.leaders()
        return made

    def fill(self, values: Iterable[bytes]) -> None:
        """Writes the values in turn to the partitions, each with its number as key.

        Raises:
            GeneratorFailed: not all of them are in the topic afterwards.
        """
        producer, count = Producer({"bootstrap.servers": self.server.bootstrap, **PRODUCER}), 0
        for count, value in enumerate(values, 1):
            while True:
                try:
                    producer.produce(self.name, value, b"%d" % count, count % self.partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush(FLUSH_SECONDS)
        self.check(count)

    def check(self, rows: int) -> None:
        """Raises GeneratorFailed unless the topic has that many records."""
        if (found := self.rows()) != rows:
            raise GeneratorFailed(f"topic {self.name} of {self.server.name} has {found} records instead of {rows}")

    def rows(self) -> int:
        """The number of records."""
        consumer = Consumer({"bootstrap.servers": self.server.bootstrap, "group.id": "bench"})
        try:
            places = [TopicPartition(self.name, number) for number in range(self.partitions)]
            bounds = [consumer.get_watermark_offsets(place, ADMIN_SECONDS) for place in places]
            return sum(end - start for start, end in bounds)
        finally:
            consumer.close()

    def delete(self) -> None:
        """Deletes the topic."""
        admin = self._admin()
        admin.delete_topics([self.name], request_timeout=ADMIN_SECONDS)[self.name].result()

    def leaders(self) -> list[int]:
        """The Kafka port of each partition's leader; waits until there is one."""
        admin, deadline = self._admin(), time.monotonic() + ADMIN_SECONDS
        while time.monotonic() < deadline:
            found = admin.list_topics(self.name, timeout=ADMIN_SECONDS)
            partitions = found.topics[self.name].partitions
            leaders = [each.leader for _, each in sorted(partitions.items())]
            if len(leaders) == self.partitions and min(leaders) >= 0:
                return [found.brokers[leader].port for leader in leaders]
            time.sleep(0.1)
        raise GeneratorFailed(f"topic {self.name} has no leader")

    @contextmanager
    def pacer(self, folder: Path, partition: int, records: int, frames_per_second: float) -> Iterator[Child]:
        """A program that produces to a partition at a steady rate during the block."""
        task = {
            "topic": self.name,
            "partition": partition,
            "port": self.leaders()[partition],
            "records": records,
            "value_bytes": SMALL_BYTES,
            "interval_seconds": 1 / frames_per_second,
        }
        with Child("fanout.pacer", task, folder / f"pacer-{self.name}-{partition}.log") as child:
            child.answer(ADMIN_SECONDS)
            yield child

    @contextmanager
    def fed(self, folder: Path, rows_per_second: int) -> Iterator[None]:
        """Rows are produced to all partitions at a steady rate during the block."""
        records = rows_per_second // (self.partitions * FRAMES_PER_SECOND)
        with ExitStack() as pacers:
            for partition in range(self.partitions):
                pacers.enter_context(self.pacer(folder, partition, records, FRAMES_PER_SECOND))
            yield

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.server.bootstrap, "log_level": 0})


def noise(rows: int, value_bytes: int) -> Iterator[bytes]:
    """Values that no codec makes smaller."""
    octets = os.urandom(NOISE_BYTES + value_bytes)
    for row in range(rows):
        at = row * value_bytes % NOISE_BYTES
        yield octets[at : at + value_bytes]


def documents(rows: int) -> Iterator[bytes]:
    """Orders as JSON objects of some 100 bytes."""
    for row in range(rows):
        yield (
            b'{"id":%d,"customer":"customer-%05d","at":"2026-01-%02dT%02d:%02d:00Z","amount":%d.25,"paid":%s}'
            % (row, row % 65_521, row % 28 + 1, row % 24, row % 60, row % 997, b"true" if row % 3 else b"false")
        )


DOCUMENT_DDL = "id BIGINT, customer STRING, at TIMESTAMP, amount DOUBLE, paid BOOLEAN"
