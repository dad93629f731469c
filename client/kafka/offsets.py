"""Finds offsets: the start and the end of partitions, and the first record of a time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.connection import KafkaClientConnection
from gnomon.client.kafka.errors import check
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_VERSION: Final = 7
_PARTITIONS_MAX: Final = 1_000
"""Partitions of one request."""


async def find_offsets(cluster: KafkaBrokers, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """The offset of each partition at a time.

    Args:
        times: EARLIEST, LATEST, or milliseconds since 1970: then the offset of the first record that is as late.

    Returns:
        None for a partition without a record that is as late.

    Raises:
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """
    found: dict[TopicPartition, int | None] = {}

    async def ask(topic: str) -> None:
        left = {place: time for place, time in times.items() if place.topic == topic and place not in found}
        by_leader: dict[KafkaClientConnection, list[TopicPartition]] = {}
        for place in left:
            by_leader.setdefault(await cluster.leader(*place), []).append(place)
        for leader, places in by_leader.items():
            for at in range(0, len(places), _PARTITIONS_MAX):
                asked = {place: left[place] for place in places[at : at + _PARTITIONS_MAX]}
                found.update(await _ask_leader(leader, topic, asked))

    for topic in sorted({place.topic for place in times}):
        await cluster.retried(topic, partial(ask, topic))
    return found


async def _ask_leader(
    leader: KafkaClientConnection, topic: str, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    asked = [ListOffsetsPartition(partition_index=place.partition, timestamp=time) for place, time in times.items()]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=asked)])
    answer = await leader.request(request, _VERSION, ListOffsetsResponse)
    found: dict[TopicPartition, int | None] = {}
    for each in answer.topics[0].partitions:
        check(each.error_code, f"partition {each.partition_index} of topic {topic!r}")
        found[TopicPartition(topic, each.partition_index)] = None if each.offset < 0 else each.offset
    return found
