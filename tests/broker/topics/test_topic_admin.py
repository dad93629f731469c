from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import trio
from cluster_calls import at, bring_back, create, cut_off, delete, on_one_partition

from gnomon.broker.errors import KafkaError
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Compare, Delete, Metadata, Operation, Put, TxnOutcome
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


class Rival:
    """Metadata in which another broker creates a topic just before this one, and perhaps deletes it just after."""

    def __init__(self, broker: EmbeddedBroker, deletes: bool) -> None:
        self._node = broker.serving.broker
        self._inner: Metadata = self._node.storage.metadata
        self._deletes = deletes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        key = topic_key("t")
        await self._inner.txn([], [Put(key, Topic("t", UUID(int=7), 3, {}).encode())])
        result = await self._inner.txn(compare, then, otherwise)
        if self._deletes:
            await self._node.topics.reached((await self._inner.txn([], [Delete(key)])).revision)
        return result


def test_a_creation_that_loses_a_race_returns_the_winners_topic() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        node = broker.serving.broker
        node.storage.metadata = Rival(broker, deletes=False)
        assert (await node.topic_admin.auto_create("t", True, lambda: True)).partitions == 3

    simulate_broker(scenario)


def test_a_creation_that_loses_a_race_does_not_wait_for_a_topic_deleted_since() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        node = broker.serving.broker
        node.storage.metadata = Rival(broker, deletes=True)
        with trio.fail_after(60), pytest.raises(KafkaError) as refused:
            await node.topic_admin.auto_create("t", True, lambda: True)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    simulate_broker(scenario)


async def grow(client: WireCluster, number: int, partitions: int) -> ErrorCode:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=partitions, assignments=None)])
    answer = await (await at(client, number)).request(request, 3, CreatePartitionsResponse)
    return ErrorCode(answer.results[0].error_code)


@pytest.mark.parametrize("asked", [delete, partial(grow, partitions=2)], ids=["deletion", "growth"])
def test_a_broker_that_lags_changes_the_next_life_of_a_topic(
    asked: Callable[[WireCluster, int], Awaitable[ErrorCode]],
) -> None:
    """The image of the broker asked shows the last life, which had three partitions and is deleted."""

    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        assert await grow(client, 2, 3) is ErrorCode.NONE
        await cut_off(cluster, 2)
        assert await delete(client, 1) is ErrorCode.NONE
        await create(client, 1, 1)
        answers = []

        async def ask() -> None:
            answers.append(await asked(client, 2))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await client.world.clock.sleep(0.5)
            assert not answers
            bring_back(cluster, 2)
        assert answers == [ErrorCode.NONE]

    on_one_partition(1, 2, work)


def test_a_broker_that_lags_changes_the_configs_of_a_new_topic() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        await cut_off(cluster, 2)
        asked = CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)])
        await (await at(client, 1)).request(asked, 7, CreateTopicsResponse)
        answers = []

        async def alter() -> None:
            config = IncrementalAlterableConfig(name="retention.ms", value="1")
            new = IncrementalAlterConfigsResource(resource_type=2, resource_name="new", configs=[config])
            request = IncrementalAlterConfigsRequest(resources=[new])
            answer = await (await at(client, 2)).request(request, 1, IncrementalAlterConfigsResponse)
            answers.append(answer.responses[0].error_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(alter)
            await client.world.clock.sleep(0.5)
            bring_back(cluster, 2)
        assert answers == [ErrorCode.NONE]

    on_one_partition(1, 2, work)
