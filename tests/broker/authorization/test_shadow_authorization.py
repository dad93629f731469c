"""Authorization of shadows: CAST on the source casts and deletes them, READ on the shadow alone reads them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `deciding`: test folders are no packages

from deciding import Refusing

from gnomon.broker.authorization.operation import Operation, ResourceType
from gnomon.broker.kafka.positions import LATEST
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
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
READING = {(Operation.READ, ResourceType.TOPIC), (Operation.DESCRIBE, ResourceType.TOPIC)}


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


def test_casting_and_deleting_a_shadow_needs_cast_on_its_source() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client = await broker.connect()
        await client.create_topic("orders")
        assert await cast(client, "copy") == 0
        deciding.refuse({(Operation.CAST, ResourceType.TOPIC)}, {"orders"})
        assert await cast(client, "other") == REFUSED
        assert await delete(client, "copy") == REFUSED
        assert await latest(client, "copy") == 0
        await client.create_topic("plain")
        assert await delete(client, "plain") == 0
        deciding.refuse(())
        assert await delete(client, "copy") == 0

    simulate_broker(scenario)


def test_reading_a_shadow_needs_read_and_describe_on_the_shadow_alone() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        deciding = broker.authorizer = Refusing()
        await broker.restart()
        client = await broker.connect()
        await client.create_topic("orders")
        assert await cast(client, "copy") == 0
        deciding.refuse(READING, {"orders"})
        assert await latest(client, "copy") == 0
        assert (await client.fetch("copy", 0, max_wait_ms=0)).error_code == 0
        deciding.refuse(READING, {"copy"})
        assert await latest(client, "copy") == REFUSED
        assert (await client.fetch("copy", 0)).error_code == REFUSED
        assert await latest(client, "orders") == 0

    simulate_broker(scenario)
