"""Tables as the conformance tests use them: a topic of three partitions, keys by partition, and its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from gnomon.client.tables.blocking_table import BlockingTable
from gnomon.wire.kafka.partitioner import partition_of

from families.family import Record
from families.group import read

if TYPE_CHECKING:
    from conftest import Client

CONFIGS = {"gnomon.view": "kv", "gnomon.view.engine": "memory"}
PARTITIONS = 3
TTL = "gnomon.ttl.ms"
SECONDS = 20


def create_table(servers: str, topic: str) -> None:
    """Creates a topic that is a table."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, -1, config=CONFIGS)])[topic].result(SECONDS)


def keys_of(partition: int, count: int = 1) -> list[bytes]:
    """Keys that belong in a partition."""
    named = (b"key %d" % number for number in range(1_000))
    return [key for key in named if partition_of(key, PARTITIONS) == partition][:count]


def contents(table: BlockingTable) -> dict[bytes, tuple[bytes, int]]:
    """Value and revision of each key."""
    return {entry.key: (entry.value, entry.revision) for entry in table.scan().entries}


def history(client: Client, topic: str, partition: int, count: int) -> list[Record]:
    """The first records of a partition, as the client reads them; fails if there are more."""
    reader = client.reader(topic, partition, "earliest")
    records = read(reader, count) + reader.poll(0.1)
    reader.close()
    assert len(records) == count, records
    return records
