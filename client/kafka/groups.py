"""Commits offsets to a consumer group without members, so that tools for groups show how far a reader has come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.connection import KafkaClientConnection
from gnomon.client.kafka.errors import check
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest, FindCoordinatorResponse
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

_GROUP: Final = 0
"""The type of a coordinator's key that is the name of a group."""


async def commit_offsets(cluster: KafkaBrokers, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits the offset of the next record of each partition; the later one of two calls counts.

    Raises:
        RequestRefused: also if the group has members.
        Unreachable: as `KafkaBrokers.retried`; the offsets may be committed.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=places) for name, places in topics.items()],
    )

    async def attempt() -> None:
        coordinator = await _coordinator(cluster, group)
        answer = await coordinator.request(request, 8, OffsetCommitResponse)
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {group!r}, partition {each.partition_index} of topic {topic.name!r}")

    await cluster.retried("", attempt)


async def _coordinator(cluster: KafkaBrokers, group: str) -> KafkaClientConnection:
    request = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[group])
    (found,) = (await (await cluster.any_broker()).request(request, 4, FindCoordinatorResponse)).coordinators
    check(found.error_code, f"group {group!r}", found.error_message)
    return await cluster.connection((found.host, found.port))
