"""Groups that move to another broker unknown to their previous coordinator: no stale offset is returned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio
from cluster_calls import at, create, fetch, held_up, on_one_partition, rejoin, unheard

from gnomon.testing.storms.kafka.broker_cluster import KAFKA_PORT, BrokerCluster
from gnomon.testing.storms.kafka.storm_clients import ask_until, delete_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest, FindCoordinatorResponse
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

OFFSETS = "__consumer_offsets"
Work: TypeAlias = Callable[[BrokerCluster, WireCluster, int, int], Awaitable[None]]


def test_a_coordinator_returns_no_offset_from_an_open_log_that_another_broker_has_claimed() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster, old: int, new: int) -> None:
        assert await commit(await at(client, new), 5) is ErrorCode.NONE
        cluster.brokers[new].kill()
        await cluster.settled(old)
        connection = await at(client, old)
        while await fetch(connection, 0, OFFSETS) != (ErrorCode.NONE, 1):
            await client.world.clock.sleep(0.1)
        with unheard(cluster, old):
            await rejoin(cluster, new, OFFSETS)
            assert await commit(await at(client, new), 50) is ErrorCode.NONE
            assert await offset(connection) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        assert await offset(await at(client, new)) == (ErrorCode.NONE, 50)

    on_one_partition_of_groups(12, work)


def test_a_coordinator_that_lost_its_groups_to_a_broker_that_lags_loads_them_again_on_request() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster, old: int, new: int) -> None:
        cluster.brokers[new].kill()
        await cluster.settled(old)
        with unheard(cluster, old):
            await rejoin(cluster, new, OFFSETS)
            assert await commit(await at(client, new), 50) is ErrorCode.NONE
            assert await commit(await at(client, old), 60) is ErrorCode.NONE
        assert await offset(await at(client, new)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        assert await offset_at_last(client, new) == 60
        assert await commit(await at(client, new), 70) is ErrorCode.NONE

    on_one_partition_of_groups(14, work)


def test_a_replaced_coordinator_does_not_confirm_the_deletion_of_offsets_that_it_does_not_know() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster, old: int, new: int) -> None:
        cluster.brokers[new].kill()
        await cluster.settled(old)
        assert await offset(await at(client, old)) == (ErrorCode.NONE, -1)
        async with trio.open_nursery() as nursery:
            with unheard(cluster, old):
                await rejoin(cluster, new, OFFSETS)
                assert await commit(await at(client, new), 50) is ErrorCode.NONE
                with held_up(cluster.serving[new].broker.topics.follower):
                    await delete_topic(WireCluster(client.world, [(f"broker-{old}", KAFKA_PORT)], "deleter"), "orders")
                    nursery.start_soon(create, client, 1, old)
                    await client.world.clock.sleep(1)
        assert await offset_at_last(client, new) == -1

    on_one_partition_of_groups(13, work)


def on_one_partition_of_groups(seed: int, work: Work) -> None:
    """Runs `work` with a client and the numbers of two brokers: the second coordinates all groups while it lives."""

    async def between(cluster: BrokerCluster, client: WireCluster) -> None:
        found, _ = await ask_until(client, find)
        await work(cluster, client, 3 - found.node_id, found.node_id)

    on_one_partition(seed, 2, between, **{"offsets.topic.num.partitions": "1"})


async def find(connection: WireConnection) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key="readers", key_type=0)
    return await connection.request(request, 3, FindCoordinatorResponse)


async def commit(connection: WireConnection, offset: int) -> ErrorCode:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="orders", partitions=[part])]
    answer = await connection.request(OffsetCommitRequest(group_id="readers", topics=topics), 7, OffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def offset(connection: WireConnection) -> tuple[ErrorCode, int]:
    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    answer = await connection.request(OffsetFetchRequest(group_id="readers", topics=topics), 5, OffsetFetchResponse)
    found = [part.committed_offset for topic in answer.topics for part in topic.partitions]
    return ErrorCode(answer.error_code), found[0] if found else -1


async def offset_at_last(client: WireCluster, number: int) -> int:
    """The offset that a coordinator returns within a second: it may have to read its log again first."""
    for _ in range(10):
        error, found = await offset(await at(client, number))
        if error is ErrorCode.NONE:
            return found
        await client.world.clock.sleep(0.1)
    raise AssertionError(f"broker {number} tells no offset: {error.name}")
