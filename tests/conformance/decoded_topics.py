"""Decodes by columns what the clients have written, as tasks of Spark do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

import pytest
import trio

from gnomon.client.addresses import parse_addresses
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.fetching import read_batches
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.runtime.trio_world import open_trio_world


def check_columns(servers: str) -> int:
    """Each row of each topic is the record that `iterate_records` has there; returns the number of rows."""
    pytest.importorskip("pyarrow", reason="pip install 'gnomon[spark]'")
    from column_rows import decoded, expected

    from gnomon.spark.columns import Range

    rows = 0
    for place, start, stop, batches in trio.run(_written, servers):
        wanted = Range(*place, start, stop)
        reference = expected(batches, wanted)
        assert decoded(batches, wanted) == reference, place
        rows += len(reference)
    return rows


async def _written(servers: str) -> Sequence[tuple[TopicPartition, int, int, list[memoryview]]]:
    """The batches of each partition, and its bounds."""
    from gnomon.spark.planning import bounds_of

    found = []
    async with open_trio_world() as world, KafkaBrokers(world, parse_addresses(servers), "decoded") as brokers:
        topics = await brokers.retried("", brokers.topics)
        ids = {TopicPartition(name, number): topic.id for name, topic in topics.items() for number in topic.leaders}
        starts, ends = await bounds_of(brokers, ids)
        for place, topic_id in ids.items():
            batches: list[memoryview] = []
            async with aclosing(read_batches(brokers, place, topic_id, starts[place], ends[place])) as parts:
                async for part in parts:
                    batches += part.batches
            found.append((place, starts[place], ends[place], batches))
    return found
