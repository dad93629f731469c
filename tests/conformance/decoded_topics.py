"""Reads the batches that the clients have written: their codecs, and their records by columns, as tasks of Spark do."""

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
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.compression import Codec


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


def codecs(servers: str, topic: str) -> set[str]:
    """The codecs of the batches of a topic."""
    written = trio.run(_written, servers, topic)
    return {Codec(parse_batch(batch).compression).name.lower() for *_, batches in written for batch in batches}


async def _written(servers: str, topic: str = "") -> Sequence[tuple[TopicPartition, int, int, list[memoryview]]]:
    """The batches of each partition, and its bounds; of all topics if none is named."""
    from gnomon.spark.planning import bounds_of

    found = []
    async with open_trio_world() as world, KafkaBrokers(world, parse_addresses(servers), "decoded") as brokers:
        topics = await brokers.retried("", brokers.topics)
        named = {name: found for name, found in topics.items() if topic in ("", name)}
        ids = {TopicPartition(name, number): each.id for name, each in named.items() for number in each.leaders}
        starts, ends = await bounds_of(brokers, ids)
        for place, topic_id in ids.items():
            batches: list[memoryview] = []
            async with aclosing(read_batches(brokers, place, topic_id, starts[place], ends[place])) as parts:
                async for part in parts:
                    batches += part.batches
            found.append((place, starts[place], ends[place], batches))
    return found
