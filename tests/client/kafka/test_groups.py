"""Offsets are committed to a group without members, and later commits replace earlier ones."""

from __future__ import annotations

import pytest
from spark_client import SparkClient, with_topics

from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.groups import commit_offsets
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest, FindCoordinatorResponse
from gnomon.wire.kafka.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


async def committed(client: SparkClient, group: str) -> dict[int, int]:
    asked = await client.cluster.any_broker()
    wanted = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    (place,) = (await asked.request(wanted, 4, FindCoordinatorResponse)).coordinators
    coordinator = await client.cluster.connection((place.host, place.port))
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
    )
    answer = await coordinator.request(request, 7, OffsetFetchResponse)
    return {each.partition_index: each.committed_offset for each in answer.topics[0].partitions}


def test_the_last_commit_counts() -> None:
    async def work(client: SparkClient) -> None:
        await commit_offsets(client.cluster, "tools", {ZERO: 5, ONE: 7})
        await commit_offsets(client.cluster, "tools", {ONE: 9})
        assert await committed(client, "tools") == {0: 5, 1: 9}

    with_topics(work)


def test_a_partition_that_does_not_exist_is_refused() -> None:
    async def work(client: SparkClient) -> None:
        with pytest.raises(RequestRefused, match="group 'tools', partition 99 of topic 'orders'"):
            await commit_offsets(client.cluster, "tools", {TopicPartition("orders", 99): 5})

    with_topics(work)
