"""Creates and deletes topics, deletes records, and reads configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from gnomon.client.kafka.brokers import KafkaBrokers, TopicLeaders
from gnomon.client.kafka.connection import KafkaClientConnection
from gnomon.client.kafka.errors import RequestRefused, check
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_TIMEOUT_MS: Final = 9_000
_TOPIC, _BROKER = 2, 4
"""Types of resources that have configs."""


async def ensure_topic(cluster: KafkaBrokers, name: str, partitions: int, configs: Mapping[str, str]) -> TopicLeaders:
    """The topic of this name, which is created unless it exists.

    Raises:
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """

    async def attempt() -> TopicLeaders:
        found = (await cluster.topics([name], skip_unknown=True)).get(name)
        if found is None:
            await _create(await cluster.any_broker(), name, partitions, configs)
            raise RequestRefused(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r}, which was just created")
        return found

    return await cluster.retried(name, attempt)


async def _create(broker: KafkaClientConnection, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=settings)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
    (found,) = (await broker.request(request, 7, CreateTopicsResponse)).topics
    if found.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        check(found.error_code, f"topic {name!r}", found.error_message)


async def delete_topic(cluster: KafkaBrokers, name: str) -> None:
    """Deletes a topic, unless there is none of this name; raises as `KafkaBrokers.retried`."""

    async def attempt() -> None:
        broker = await cluster.any_broker()
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
        (found,) = (await broker.request(request, 6, DeleteTopicsResponse)).responses
        if found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            check(found.error_code, f"topic {name!r}", found.error_message)

    await cluster.retried(name, attempt)


async def delete_records(cluster: KafkaBrokers, topic: str, ends: Mapping[int, int]) -> None:
    """Deletes the records of partitions of one topic below these offsets; raises as `KafkaBrokers.retried`."""
    for partition, end in sorted(ends.items()):
        await cluster.retried(topic, partial(_delete_records, cluster, TopicPartition(topic, partition), end))


async def _delete_records(cluster: KafkaBrokers, place: TopicPartition, end: int) -> None:
    leader = await cluster.leader(*place)
    wanted = DeleteRecordsPartition(partition_index=place.partition, offset=end)
    topic = DeleteRecordsTopic(name=place.topic, partitions=[wanted])
    answer = await leader.request(
        DeleteRecordsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS), 2, DeleteRecordsResponse
    )
    check(answer.topics[0].partitions[0].error_code, f"partition {place.partition} of topic {place.topic!r}")


async def topic_configs(cluster: KafkaBrokers, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The configs of topics; one without a value is left out. Raises as `KafkaBrokers.retried`."""
    wanted = [DescribeConfigsResource(resource_type=_TOPIC, resource_name=name) for name in names]

    async def attempt() -> dict[str, dict[str, str]]:
        broker = await cluster.any_broker()
        answer = await broker.request(DescribeConfigsRequest(resources=wanted), 4, DescribeConfigsResponse)
        found = {}
        for each in answer.results:
            check(each.error_code, f"topic {each.resource_name!r}", each.error_message)
            found[each.resource_name] = {one.name: one.value for one in each.configs if one.value is not None}
        return found

    return await cluster.retried("", attempt)


async def broker_config(cluster: KafkaBrokers, name: str) -> str:
    """A config of one of the brokers; empty if it has none of this name. Raises as `KafkaBrokers.retried`."""

    async def attempt() -> str:
        number, broker = await cluster.numbered_broker()
        wanted = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(number), configuration_keys=[name])
        answer = await broker.request(DescribeConfigsRequest(resources=[wanted]), 4, DescribeConfigsResponse)
        check(answer.results[0].error_code, f"broker {number}", answer.results[0].error_message)
        return next((each.value or "" for each in answer.results[0].configs), "")

    return await cluster.retried("", attempt)
