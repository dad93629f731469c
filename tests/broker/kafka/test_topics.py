"""Creating, growing and deleting topics."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
from gnomon.wire.kafka.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from gnomon.wire.kafka.records import Record, build_batch


def _topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


async def _create(client: BrokerClient, *topics: CreatableTopic, version: int = 7, validate: bool = False) -> list[Any]:
    response = await client.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate), version)
    found: list[Any] = response.topics
    return found


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_and_described(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        configs = [CreatableTopicConfig(name="retention.ms", value="1000")]
        (created,) = await _create(client, _topic("t", -1, -1, configs=configs), version=version)
        assert (created.error_code, created.error_message) == (0, None)
        if version >= 5:
            assert (created.num_partitions, created.replication_factor) == (2, 1)
            answered = {item.name: (item.value, item.config_source) for item in created.configs}
            assert answered["retention.ms"] == ("1000", 1)
            assert answered["segment.ms"] == ("604800000", 5)
            assert all(source != -1 for _, source in answered.values())
        (again,) = await _create(client, _topic("t"), version=version)
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        if version >= 5:
            assert again.configs == []

    simulate_broker(scenario, kafka={"num.partitions": "2"})


def test_validate_only_creates_nothing() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        good, bad = await _create(client, _topic("t"), _topic("a b"), validate=True)
        assert (good.error_code, good.topic_id.int, bad.error_code) == (0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        assert (await client.ask(asked, 9)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    simulate_broker(scenario)


def test_a_topic_that_cannot_be_created_is_refused_with_its_error() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("a.b")
        here = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
        elsewhere = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
        gap = [CreatableReplicaAssignment(partition_index=1, broker_ids=[1])]
        cases = [
            (_topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (_topic("a.b"), ErrorCode.TOPIC_ALREADY_EXISTS),
            (_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (_topic("p0", 0), ErrorCode.INVALID_PARTITIONS),
            (_topic("p-2", -2), ErrorCode.INVALID_PARTITIONS),
            (_topic("p-many", 100_001), ErrorCode.INVALID_PARTITIONS),
            (_topic("f3", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
            (_topic("f0", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
            (_topic("both", 1, 1, assignments=here), ErrorCode.INVALID_REQUEST),
            (_topic("away", -1, -1, assignments=elsewhere), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (_topic("gap", -1, -1, assignments=gap), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (_topic("c1", configs=[CreatableTopicConfig(name="nonsense", value="1")]), ErrorCode.INVALID_CONFIG),
            (_topic("c2", configs=[CreatableTopicConfig(name="retention.ms")]), ErrorCode.INVALID_CONFIG),
            (_topic("c3", configs=[CreatableTopicConfig(name="retention.ms", value="1_0")]), ErrorCode.INVALID_CONFIG),
            (_topic("twice"), ErrorCode.INVALID_REQUEST),
            (_topic("twice"), ErrorCode.INVALID_REQUEST),
            (_topic("fine", -1, -1, assignments=here), ErrorCode.NONE),
            (_topic("tenant/space/topic"), ErrorCode.NONE),
        ]
        results = await _create(client, *(topic for topic, _ in cases))
        found = [(result.name, ErrorCode(result.error_code)) for result in results]
        assert found == list(dict.fromkeys((topic.name, error) for topic, error in cases)), "each is answered once"
        assert all(bool(result.error_message) == bool(result.error_code) for result in results)

    simulate_broker(scenario)


def test_topics_are_deleted_by_name_and_by_id_with_all_their_records() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        batch = build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=1)
        await client.create_topic("a")
        b = await client.create_topic("b")
        await client.produce("a", batch)
        response = await client.ask(DeleteTopicsRequest(topic_names=["a", "missing"]), 5)
        assert [(item.name, item.error_code) for item in response.responses] == [("a", 0), ("missing", 3)]
        for found in [("b", 0), (None, 100)]:
            ids = [DeleteTopicState(topic_id=b), DeleteTopicState(name="missing")]
            response = await client.ask(DeleteTopicsRequest(topics=ids), 6)
            assert [(item.name, item.error_code) for item in response.responses] == [found, ("missing", 3)]
        assert (await client.produce("a", batch)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await client.create_topic("a")
        assert (await client.produce("a", batch)).base_offset == 0
        await broker.simulation.sleep(60)
        assert len(await broker.serving.store.ledgers.all()) == 1

    simulate_broker(scenario)


def test_a_topic_named_twice_in_a_deletion_stays() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        names = ["a", "b", "c"]
        ids = {item.name: item.topic_id for item in await _create(client, *map(_topic, names))}
        asked = [
            *[DeleteTopicState(name="a")] * 2,
            *[DeleteTopicState(topic_id=ids["b"])] * 2,
            DeleteTopicState(name="c", topic_id=ids["c"]),
            DeleteTopicState(),
        ]
        answered = (await client.ask(DeleteTopicsRequest(topics=asked), 6)).responses
        assert [item.error_code for item in answered] == [ErrorCode.INVALID_REQUEST] * 4, "each is answered once"
        answered = (await client.ask(DeleteTopicsRequest(topic_names=["a", "a"]), 5)).responses
        assert [(item.name, item.error_code) for item in answered] == [("a", ErrorCode.INVALID_REQUEST)]
        assert {item.name for item in (await client.ask(MetadataRequest(topics=None), 9)).topics} == set(names)

    simulate_broker(scenario)


def test_the_deletion_of_topics_can_be_disabled_and_never_includes_internal_topics() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("a")
        await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]), 9)
        response = await client.ask(DeleteTopicsRequest(topic_names=["a", "__consumer_offsets"]), 5)
        errors = [item.error_code for item in response.responses]
        assert errors == [ErrorCode.TOPIC_DELETION_DISABLED, ErrorCode.INVALID_REQUEST]

    simulate_broker(scenario, kafka={"delete.topic.enable": "false"})


@pytest.mark.parametrize("version", range(4))
def test_the_number_of_partitions_only_grows(version: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", 2)

        async def grow(name: str, count: int, *, validate: bool = False, assigned: list[int] | None = None) -> int:
            given = None if assigned is None else [CreatePartitionsAssignment(broker_ids=[node]) for node in assigned]
            topic = CreatePartitionsTopic(name=name, count=count, assignments=given)
            response = await client.ask(CreatePartitionsRequest(topics=[topic], validate_only=validate), version)
            code: int = response.results[0].error_code
            return code

        assert await grow("missing", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await grow("t", 2) == await grow("t", 1) == ErrorCode.INVALID_PARTITIONS
        assert await grow("t", 3, assigned=[1, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await grow("t", 3, assigned=[9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await grow("t", 3, validate=True) == 0
        batch = build_batch([Record(offset_delta=0, key=None, value=b"v")], base_timestamp=1)
        assert (await client.produce("t", batch, 2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await grow("t", 4, assigned=[1, 1]) == 0
        assert (await client.produce("t", batch, 3)).error_code == 0

    simulate_broker(scenario)


def test_a_topic_named_twice_in_a_growth_does_not_grow() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", 2)
        asked = [CreatePartitionsTopic(name="t", count=count, assignments=None) for count in (3, 4)]
        answered = (await client.ask(CreatePartitionsRequest(topics=asked), 3)).results
        assert [(item.name, item.error_code) for item in answered] == [("t", ErrorCode.INVALID_REQUEST)]
        (topic,) = (await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)).topics
        assert len(topic.partitions) == 2

    simulate_broker(scenario)
