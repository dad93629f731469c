"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, and the offsets of unknown groups."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.batch import HEADER, parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from gnomon.wire.kafka.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from gnomon.wire.kafka.records import Record, build_batch


async def _filled(broker: EmbeddedBroker, *timestamps: int) -> BrokerClient:
    client = await broker.connect()
    await client.create_topic("t", configs={"retention.ms": "-1", "message.timestamp.after.max.ms": str(1 << 60)})
    for timestamp in timestamps:
        records = [Record(offset_delta=number, timestamp_delta=number, key=None, value=b"v") for number in range(2)]
        produced = await client.produce("t", build_batch(records, base_timestamp=timestamp))
        assert produced.error_code == 0
    return client


async def _list(client: BrokerClient, timestamp: int, version: int = 11, partition: int = 0, epoch: int = -1) -> Any:
    wanted = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    topic = ListOffsetsTopic(name="t", partitions=[wanted])
    return (await client.ask(ListOffsetsRequest(topics=[topic]), version)).topics[0].partitions[0]


async def _delete(client: BrokerClient, offset: int, topic: str = "t", partition: int = 0) -> tuple[int, int]:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])])
    result = (await client.ask(request, 2)).topics[0].partitions[0]
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_found_by_time_and_by_name(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1000, 3000, 2000)

        async def found(timestamp: int) -> tuple[int, int, int]:
            place = await _list(client, timestamp, version)
            return place.error_code, place.offset, place.timestamp

        assert await found(-1) == (0, 6, -1)
        assert await found(-2) == (0, 0, -1)
        assert await found(1001) == (0, 1, 1001)
        assert await found(1002) == (0, 2, 3000)
        assert await found(3002) == (0, -1, -1)
        if version >= 7:
            assert await found(-3) == (0, 3, 3001)
        if version >= 8:
            assert await found(-4) == (0, 0, -1)
        if version >= 9:
            assert await found(-5) == (0, -1, -1)
        assert (await found(-77))[0] != 0

    simulate_broker(scenario)


def test_a_batch_with_impossible_times_is_found_at_its_first_offset_and_the_node_continues() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1000)
        await client.alter_configs(2, "t", ("message.timestamp.after.max.ms", 0, str((1 << 63) - 1)))
        batch = memoryview(build_batch([Record(timestamp_delta=1, value=b"v")], base_timestamp=5000))
        changed = HEADER.pack(*parse_batch(batch)._replace(base_timestamp=(1 << 63) - 1)) + bytes(batch[HEADER.size :])
        poison = changed[:17] + crc32c(changed[21:]).to_bytes(4, "big") + changed[21:]
        assert (await client.produce("t", poison)).error_code == 0
        place = await _list(client, 4000)
        assert (place.error_code, place.offset, place.timestamp) == (0, 2, 5001)

    simulate_broker(scenario)


def test_a_partition_that_is_named_twice_is_refused_and_a_long_list_is_answered() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1000)
        indexes = [0, 1, 1, *range(2, 100)]
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=-2) for index in indexes]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=wanted)])
        found = (await client.ask(request, 5)).topics[0].partitions
        twice, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [item.error_code for item in found] == [0, twice, twice, *[unknown] * 98]

    simulate_broker(scenario)


def test_an_offset_that_cannot_be_listed_is_answered_with_its_error() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1000)
        assert (await _list(client, -1, partition=5)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await _list(client, -1, epoch=9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        await broker.restart()
        client = await broker.connect()
        assert (await _list(client, -1, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await _list(client, -1, epoch=1)).offset == 2

    simulate_broker(scenario)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch_is_answered(version: int) -> None:  # KIP-320
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1000)
        await broker.restart()
        client = await broker.connect()
        batch = build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=1)
        assert (await client.produce("t", batch)).base_offset == 2

        async def end(epoch: int, partition: int = 0, current: int = -1) -> tuple[int, int, int]:
            wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
            found = (await client.ask(request, version)).topics[0].partitions[0]
            return found.error_code, found.leader_epoch, found.end_offset

        assert await end(0) == (0, 0, 2)
        assert await end(1) == (0, 1, 3)
        assert await end(2) == (0, -1, -1)
        assert await end(0, partition=4) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await end(0, current=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)

    simulate_broker(scenario)


def test_records_are_deleted_up_to_an_offset_and_stay_deleted() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1000, 2000, 3000)
        assert await _delete(client, 3) == (0, 3)
        assert await _delete(client, 1) == (0, 3)
        assert await _delete(client, 7) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await _delete(client, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await _delete(client, 0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert (await client.fetch("t", 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await client.fetch("t", 3)).error_code == 0
        assert (await _list(client, -2)).offset == 3
        await broker.restart(power_lost=True)
        client = await broker.connect()
        assert (await _list(client, -2)).offset == 3
        assert await _delete(client, -1) == (0, 6)
        assert ((await _list(client, -2)).offset, (await _list(client, -1)).offset) == (6, 6)
        await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]), 9)
        assert await _delete(client, -1, "__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)

    simulate_broker(scenario)


def test_a_request_after_a_change_on_the_same_connection_sees_the_change() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _filled(broker, 1000, 2000)
        wanted = DeleteRecordsPartition(partition_index=0, offset=3)
        delete = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])])
        client.connection.send(delete, 2)
        assert (await _list(client, -2)).offset == 3

        place = OffsetCommitRequestPartition(partition_index=0, committed_offset=4)
        commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[place])])
        fetch = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        while _loading(await client.ask(fetch, 7), 7):
            await broker.simulation.sleep(0.1)
        client.connection.send(commit, 7)
        assert (await client.ask(fetch, 7)).topics[0].partitions[0].committed_offset == 4

    simulate_broker(scenario)


@pytest.mark.parametrize("version", range(1, 11))
def test_an_unknown_group_has_no_committed_offsets_and_that_is_no_error(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        topic_id = await client.create_topic("t")
        request = OffsetFetchRequest(group_id="unknown")
        if version >= 8:
            topics = [OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="unknown", topics=topics)])
        else:
            request.topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        response = await client.ask(request, version)
        while _loading(response, version):
            await broker.simulation.sleep(0.1)
            response = await client.ask(request, version)
        group = response.groups[0] if version >= 8 else response
        (topic,) = group.topics
        (partition,) = topic.partitions
        assert (partition.error_code, partition.committed_offset) == (0, -1)

    simulate_broker(scenario)


def _loading(response: Any, version: int) -> bool:
    group = response.groups[0] if version >= 8 else response
    codes = [group.error_code, *(part.error_code for topic in group.topics for part in topic.partitions)]
    return any(code in (14, 15, 16) for code in codes)
