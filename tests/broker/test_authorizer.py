"""Permissions on shadows: casting and deleting one needs the source's policy, reading one nothing but itself."""

from __future__ import annotations

import pytest

from gnomon.broker.authorizer import ANONYMOUS, AllowAll, Permission, check
from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.positions import LATEST
from gnomon.testing.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.positions import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Except:
    """Everybody may everything but one thing."""

    def __init__(self, permission: Permission, topic: str) -> None:
        self._refused = (ANONYMOUS, permission, topic)

    def allows(self, principal: str, permission: Permission, topic: str) -> bool:
        return (principal, permission, topic) != self._refused


async def cast(client: BrokerClient, shadow: str) -> int:
    configs = [CreatableTopicConfig(name="gnomon.shadow.source", value="orders")]
    topic = CreatableTopic(name=shadow, num_partitions=-1, replication_factor=-1, configs=configs)
    code: int = (await client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics[0].error_code
    return code


async def delete(client: BrokerClient, name: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
    code: int = (await client.ask(request, 6)).responses[0].error_code
    return code


async def latest(client: BrokerClient, topic: str) -> int:
    wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
    code: int = (await client.ask(ListOffsetsRequest(topics=[wanted]), 7)).topics[0].partitions[0].error_code
    return code


def test_casting_and_deleting_a_shadow_needs_the_policy_of_its_source() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        assert await cast(client, "copy") == 0
        broker.serving.broker.authorizer = Except(Permission.WRITE_SHADOW_TOPIC, "orders")
        assert await cast(client, "other") == REFUSED
        assert await delete(client, "copy") == REFUSED
        assert await latest(client, "copy") == 0
        await client.create_topic("plain")
        assert await delete(client, "plain") == 0
        broker.serving.broker.authorizer = AllowAll()
        assert await delete(client, "copy") == 0

    simulate_broker(scenario)


def test_reading_a_shadow_needs_the_permission_on_the_shadow_alone() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        assert await cast(client, "copy") == 0
        broker.serving.broker.authorizer = Except(Permission.READ, "orders")
        assert await latest(client, "copy") == 0
        assert (await client.fetch("copy", 0, max_wait_ms=0)).error_code == 0
        broker.serving.broker.authorizer = Except(Permission.READ, "copy")
        assert await latest(client, "copy") == REFUSED
        assert (await client.fetch("copy", 0)).error_code == REFUSED
        assert await latest(client, "orders") == 0

    simulate_broker(scenario)


def test_a_refusal_names_who_what_and_which_topic() -> None:
    with pytest.raises(KafkaError, match="'ada' may not read it: topic 'copy'"):
        check(_Nobody(), Permission.READ, "copy", "ada")


class _Nobody:
    def allows(self, principal: str, permission: Permission, topic: str) -> bool:
        return False
