"""Group requests at the front end: partitions that do not exist never reach the coordinator."""

from __future__ import annotations

from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _delete(client: BrokerClient, group: str, *places: tuple[str, list[int]]) -> list[tuple[str, dict[int, int]]]:
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for name, indexes in places
    ]
    response = await client.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    if response.error_code:
        return [("", {-1: response.error_code})]
    return [
        (topic.name, {part.partition_index: part.error_code for part in topic.partitions}) for topic in response.topics
    ]


def test_the_deletion_of_offsets_is_refused_for_partitions_that_do_not_exist() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", partitions=2)
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
        commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[part])])
        await client.ask(commit, 7)
        answer = await _delete(client, "g", ("t", [0, 1, 2]), ("none", [0]))
        assert answer == [("t", {0: 0, 1: 0, 2: UNKNOWN}), ("none", {0: UNKNOWN})]
        assert await _delete(client, "g", ("none", [0, 1])) == [("none", {0: UNKNOWN, 1: UNKNOWN})]
        gone = [("", {-1: ErrorCode.GROUP_ID_NOT_FOUND})]
        assert await _delete(client, "g", ("t", [0]), ("none", [0])) == gone
        assert await _delete(client, "g") == gone

    simulate_broker(scenario)
