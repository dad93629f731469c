"""The view of a topic: chosen when the topic is created, and kept for as long as the topic exists."""

from __future__ import annotations

from typing import Any

from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from gnomon.wire.kafka.records import Record, build_batch

TOPIC = 2
SET, DELETE = 0, 1
TABLE = {"gnomon.view": "kv", "gnomon.view.engine": "memory"}


async def created(client: BrokerClient, name: str, configs: dict[str, str]) -> Any:
    given = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, configs=given)
    return (await client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics[0]


def keyed(key: bytes) -> bytes:
    return build_batch([Record(key=key, value=b"v" * 50)], base_timestamp=1)


def test_a_view_and_an_engine_that_do_not_exist_are_refused() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        for configs in ({"gnomon.view": "graph"}, {"gnomon.view": "kv", "gnomon.view.engine": "tape"}):
            assert (await created(client, "t", configs)).error_code == ErrorCode.INVALID_CONFIG

    simulate_broker(scenario)


def test_the_view_of_a_topic_cannot_be_changed() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs=TABLE)
        await client.create_topic("plain")
        for name, change in (
            ("t", ("gnomon.view", SET, "none")),
            ("t", ("gnomon.view", DELETE, None)),
            ("t", ("gnomon.view.engine", SET, "disk")),
            ("t", ("gnomon.view.engine", DELETE, None)),
            ("plain", ("gnomon.view", SET, "kv")),
        ):
            code, text = await client.alter_configs(TOPIC, name, change)
            assert code == ErrorCode.INVALID_CONFIG
            assert "is fixed when the topic is created" in (text or "")
        assert (await client.alter_configs(TOPIC, "t", ("retention.ms", SET, "5")))[0] == 0

    simulate_broker(scenario)


def test_alter_configs_that_leaves_the_view_out_is_refused() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs=TABLE)
        for kept, code in (({}, ErrorCode.INVALID_CONFIG), (TABLE, ErrorCode.NONE)):
            configs = [AlterableConfig(name=name, value=value) for name, value in {"segment.ms": "3", **kept}.items()]
            resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
            answer = (await client.ask(AlterConfigsRequest(resources=[resource]), 1)).responses[0]
            assert answer.error_code == code
        await client.produce("t", build_batch([Record(value=b"no key")], base_timestamp=1))
        assert (await client.produce("t", keyed(b"k"))).base_offset == 0

    simulate_broker(scenario)


def test_a_table_does_not_grow() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t", configs=TABLE)
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)], timeout_ms=1_000)
        answer = (await client.ask(request, 2)).results[0]
        assert answer.error_code == ErrorCode.INVALID_PARTITIONS
        assert "is a table" in answer.error_message

    simulate_broker(scenario)


def test_a_shadow_has_no_view_of_its_own() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("t")
        answer = await created(client, "copy", {"gnomon.shadow.source": "t", **TABLE})
        assert answer.error_code == ErrorCode.INVALID_CONFIG

    simulate_broker(scenario)
