"""`__consumer_offsets` in a whole broker: where groups are stored, and offsets of deleted topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import trio

from gnomon.broker.errors import KafkaError
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import JoinGroupRequest, JoinGroupRequestProtocol
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from gnomon.wire.kafka.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest

GROUPS = ("alpha", "beta", "gamma", "delta", "epsilon")


async def _commit(client: BrokerClient, group: str, offset: int) -> ErrorCode:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[part])]
    response = await client.ask(OffsetCommitRequest(group_id=group, topics=topics), 7)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def _offset(client: BrokerClient, group: str) -> int:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    response = await client.ask(OffsetFetchRequest(group_id=group, topics=topics), 5)
    assert response.error_code == ErrorCode.NONE
    offset: int = response.topics[0].partitions[0].committed_offset
    return offset


async def _with_a_commit(broker: EmbeddedBroker) -> BrokerClient:
    """A client that has created the topic, and committed offset 5 to it for group g."""
    client = await broker.connect()
    await client.create_topic("t")
    assert await _commit(client, "g", 5) is ErrorCode.NONE
    return client


def test_groups_keep_their_partition_when_the_configured_number_of_partitions_changes() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        for group in GROUPS:
            assert await _commit(client, group, 5) is ErrorCode.NONE
        for number in ("1", "100"):
            broker.settings = replace(broker.settings, kafka={"offsets.topic.num.partitions": number})
            await broker.restart()
            client = await broker.connect()
            assert [await _offset(client, group) for group in GROUPS] == [5] * len(GROUPS)

    simulate_broker(scenario, kafka={"offsets.topic.num.partitions": "10"})


def test_clients_can_neither_create_nor_alter_the_offsets_topic() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        asked = CreatableTopic(name="__consumer_offsets", num_partitions=1, replication_factor=1)
        response = await client.ask(CreateTopicsRequest(topics=[asked]), 7)
        assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST
        await client.create_topic("t")
        for group in GROUPS:
            assert await _commit(client, group, 5) is ErrorCode.NONE
        altered, _ = await client.alter_configs(2, "__consumer_offsets", ("retention.ms", 0, "1"))
        assert altered == ErrorCode.INVALID_REQUEST

    simulate_broker(scenario)


def test_a_join_is_refused_on_a_full_disk_until_there_is_room() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols
        )
        broker.machine.disk.conditions.full = True
        assert (await client.ask(request, 3)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.machine.disk.conditions.full = False
        assert (await client.ask(request, 3)).error_code == ErrorCode.NONE

    simulate_broker(scenario)


def test_configured_retention_and_batch_size_do_not_apply_to_internal_topics() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        node = broker.serving.broker
        made = node.creation.check_new("__consumer_offsets", 1, {"max.message.bytes": "1"}, internal=True)
        settings = node.topics.settings_of(made)
        assert (settings.retention_ms, settings.retention_bytes) == (-1, -1)
        assert settings.batch_bytes_max == 100 << 20

    simulate_broker(scenario, kafka={"log.retention.ms": "1", "log.retention.bytes": "1"})


async def _delete(client: BrokerClient) -> None:
    response = await client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert response.responses[0].error_code == ErrorCode.NONE


def test_offsets_of_a_deleted_topic_do_not_return_in_its_next_life_after_a_crash() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _with_a_commit(broker)
        broker.serving.broker.deleted_topics._delete_offsets = _never
        await _delete(client)
        await broker.restart()
        client = await broker.connect()
        await client.create_topic("t")
        assert await _offset(client, "g") == -1
        assert await _commit(client, "g", 6) is ErrorCode.NONE
        await broker.restart()
        await broker.simulation.sleep(10)
        assert await _offset(await broker.connect(), "g") == 6

    simulate_broker(scenario)


def test_a_restart_finishes_the_deletion_of_topics() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _with_a_commit(broker)
        broker.serving.broker.deleted_topics._delete_offsets = _never
        await _delete(client)
        assert await _offset(client, "g") == 5
        await broker.restart()
        await broker.simulation.sleep(10)
        assert await _offset(await broker.connect(), "g") == -1
        assert (await broker.serving.broker.storage.metadata.range("deleted/")).items == ()

    simulate_broker(scenario)


def test_a_topic_whose_offsets_cannot_be_deleted_is_not_created_again_until_they_are() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await _with_a_commit(broker)
        deleted = broker.serving.broker.deleted_topics
        working, deleted._delete_offsets = deleted._delete_offsets, _fail
        await _delete(client)
        asked = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
        assert (await client.ask(asked, 7)).topics[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "offsets_not_deleted" in [event for event, _ in broker.events]
        deleted._delete_offsets = working
        assert (await client.ask(asked, 7)).topics[0].error_code == ErrorCode.NONE
        assert await _offset(client, "g") == -1

    simulate_broker(scenario)


async def _never(topics: Sequence[str]) -> None:
    await trio.sleep_forever()


async def _fail(topics: Sequence[str]) -> None:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not now")
