"""A topic whose records are numbered, so that each reader can tell which of them are missing or doubled.

Record n of a topic with p partitions has the value n, is in partition n % p and has the timestamp START_MS + n. Each
fifth record has no key; odd records have two headers, one of them without a value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START_MS = 1_700_000_000_000
READ_SECONDS = 30.0


class NumberedTopic:
    """Made with its first `partitions`."""

    def __init__(self, servers: str, name: str, partitions: int = 2, configs: Mapping[str, str] | None = None) -> None:
        self.servers, self.name, self.partitions = servers, name, partitions
        self.sent = 0
        self._settings = {"bootstrap.servers": servers}
        self._admin = AdminClient(self._settings)
        new = NewTopic(name, partitions, config=dict(configs or {}))
        self._admin.create_topics([new])[name].result()

    def shadow(self) -> NumberedTopic:
        """A shadow of this topic."""
        name = f"{self.name}.shadow"
        return NumberedTopic(self.servers, name, self.partitions, {"gnomon.shadow.source": self.name})

    def grow(self, partitions: int) -> None:
        """The records that follow go to all of `partitions`."""
        self._admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result()
        self.partitions = partitions

    def produce(self, count: int) -> None:
        """Writes the next `count` records."""
        producer = Producer({**self._settings, "compression.type": "zstd"})
        for number in range(self.sent, self.sent + count):
            producer.produce(
                self.name,
                b"%d" % number,
                key_of(number),
                number % self.partitions,
                timestamp=START_MS + number,
                headers=headers_of(number),
            )
            producer.poll(0)
        assert producer.flush() == 0
        self.sent += count

    def delete_before(self, offset: int) -> None:
        """Deletes the records of each partition before an offset."""
        places = [TopicPartition(self.name, index, offset) for index in range(self.partitions)]
        for done in self._admin.delete_records(places).values():
            done.result()

    def check(self, rows: DataFrame) -> None:
        """Each record is one of the rows, once. The rows have `value`, `partition` and `offset`."""
        found = rows.selectExpr("int(string(value)) as number", "partition", "offset").collect()
        assert sorted(row.number for row in found) == list(range(self.sent))
        assert len({(row.partition, row.offset) for row in found}) == self.sent

    def read(self, count: int) -> list[tuple[int, bytes | None, bytes | None, Collection[tuple[str, bytes | None]]]]:
        """The first `count` records for a Kafka consumer: partition, key, value and headers."""
        consumer = Consumer({**self._settings, "group.id": "check", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.name, index, 0) for index in range(self.partitions)])
        found = consumer.consume(count, READ_SECONDS)
        consumer.close()
        assert not [each for each in found if each.error()]
        return [(each.partition() or 0, each.key(), each.value(), each.headers() or ()) for each in found]


def key_of(number: int) -> bytes | None:
    return None if number % 5 == 0 else b"key-%d" % number


def headers_of(number: int) -> list[tuple[str, bytes | None]] | None:
    return [("number", b"%d" % number), ("none", None)] if number % 2 else None
