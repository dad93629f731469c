"""Client requests about shadows and their sources."""

from __future__ import annotations

from typing import Any

from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.log.topic import Topic
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
from gnomon.wire.kafka.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from gnomon.wire.kafka.records import Record, build_batch

TOPIC = 2


Outcome = tuple[int, str | None]


async def cast(client: BrokerClient, shadow: str, source: str | None, partitions: int = -1, **configs: str) -> Outcome:
    given = {SHADOW_SOURCE: source, **{key.replace("_", "."): value for key, value in configs.items()}}
    topic = CreatableTopic(
        name=shadow,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in given.items()],
    )
    (result,) = (await client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics
    return result.error_code, result.error_message


async def delete(client: BrokerClient, name: str) -> Outcome:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
    (result,) = (await client.ask(request, 6)).responses
    return result.error_code, result.error_message


async def grow(client: BrokerClient, name: str, count: int) -> Outcome:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)], timeout_ms=1000
    )
    (result,) = (await client.ask(request, 3)).results
    return result.error_code, result.error_message


async def replace_configs(client: BrokerClient, name: str, **configs: str) -> int:
    given = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=given)
    code: int = (await client.ask(AlterConfigsRequest(resources=[resource]), 2)).responses[0].error_code
    return code


async def described(client: BrokerClient, name: str) -> dict[str, Any]:
    return {item.name: item for item in (await client.describe_configs(TOPIC, name)).configs}


async def topic_metadata(client: BrokerClient, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return (await client.ask(request, 9)).topics[0]


def image(broker: EmbeddedBroker, name: str) -> Topic:
    topic = broker.serving.broker.topics.image.get(name)
    assert topic is not None
    return topic


def shadows(broker: EmbeddedBroker, name: str) -> list[str]:
    return [shadow.name for shadow in broker.serving.broker.topics.image.shadows_of(image(broker, name))]


def batch(value: str) -> bytes:
    return build_batch([Record(offset_delta=0, value=value.encode())], base_timestamp=1000)
