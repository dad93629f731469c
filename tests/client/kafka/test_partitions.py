"""Offsets and batches of partitions, found and read at their leaders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest
import trio

from gnomon.client.kafka.brokers import KafkaBrokers, UnknownTopic
from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.fetching import read_batches, split
from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.topic_partition import EARLIEST, LATEST, TopicPartition
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.batch import MalformedBatch, parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
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
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

LEASE_SECONDS = 3.0
START_MS = 1_000_000
BATCHES, RECORDS, VALUE_BYTES = 12, 10, 20_000
"""Of partition 0, some 2.4 MB: several fetches. Record n has the timestamp START_MS + n."""
END = BATCHES * RECORDS
ORDERS = TopicPartition("orders", 0)


def with_records(work: Callable[[BrokerCluster, KafkaBrokers], Awaitable[None]]) -> None:
    """Runs `work` on a client of two brokers, with records in partition 0 of the topic `orders`; 1 has none."""

    async def scenario(simulation: Simulation) -> None:
        brokers = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await brokers.start()

        async def client(wire: WireCluster) -> None:
            async with KafkaBrokers(wire.world, brokers.bootstrap, patience_seconds=20) as cluster:
                await create(cluster)
                await work(brokers, cluster)

        await brokers.run_client("client", client)

    simulate(1, scenario)


async def create(cluster: KafkaBrokers) -> None:
    orders = CreatableTopic(name="orders", num_partitions=2, replication_factor=-1)
    broker = await cluster.any_broker()
    await broker.request(CreateTopicsRequest(topics=[orders]), 7, CreateTopicsResponse)
    leader = await cluster.leader(*ORDERS)
    for first in range(0, END, RECORDS):
        records = [Record(at, at, None, b"%d" % (first + at) + bytes(VALUE_BYTES)) for at in range(RECORDS)]
        data = PartitionProduceData(index=0, records=build_batch(records, base_timestamp=START_MS + first))
        request = ProduceRequest(
            acks=-1, timeout_ms=9_000, topic_data=[TopicProduceData(name="orders", partition_data=[data])]
        )
        answer = await leader.request(request, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0


async def offsets_of(cluster: KafkaBrokers, start: int, stop: int) -> list[int]:
    found = []
    topic_id = (await cluster.topic("orders")).id
    async with aclosing(read_batches(cluster, ORDERS, topic_id, start, stop)) as parts:
        async for part in parts:
            for batch in part.batches:
                base = parse_batch(batch).base_offset
                for record in iterate_records(batch, 1 << 30):
                    offset = base + record.offset_delta
                    assert record.value == b"%d" % offset + bytes(VALUE_BYTES)
                    found.append(offset)
    return found


def test_offsets_are_found_by_time() -> None:
    async def work(_: BrokerCluster, cluster: KafkaBrokers) -> None:
        other = TopicPartition("orders", 1)
        assert await find_offsets(cluster, {}) == {}
        assert await find_offsets(cluster, {ORDERS: EARLIEST, other: EARLIEST}) == {ORDERS: 0, other: 0}
        assert await find_offsets(cluster, {ORDERS: LATEST, other: LATEST}) == {ORDERS: END, other: 0}
        assert await find_offsets(cluster, {ORDERS: START_MS + 33, other: 0}) == {ORDERS: 33, other: None}
        assert await find_offsets(cluster, {ORDERS: START_MS + END}) == {ORDERS: None}
        with pytest.raises(UnknownTopic):
            await find_offsets(cluster, {TopicPartition("missing", 0): LATEST})

    with_records(work)


def test_batches_of_a_range_are_read_once_and_in_order() -> None:
    async def work(_: BrokerCluster, cluster: KafkaBrokers) -> None:
        assert await offsets_of(cluster, 0, END) == list(range(END))
        assert await offsets_of(cluster, 15, 35) == list(range(10, 40))
        assert await offsets_of(cluster, 20, 20) == []

    with_records(work)


def test_a_range_is_read_on_while_its_leader_is_killed() -> None:
    async def work(brokers: BrokerCluster, cluster: KafkaBrokers) -> None:
        async def kill() -> None:
            await trio.sleep(0.002)
            brokers.brokers[brokers.leader(*ORDERS)].kill()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            found: list[int] = []
            while brokers.simulation.clock.monotonic() < 2 * LEASE_SECONDS + 1:
                found = await offsets_of(cluster, 0, END)
                assert found == list(range(END))

    with_records(work)


def test_records_that_were_deleted_and_topics_that_were_created_again_are_not_read() -> None:
    async def work(_: BrokerCluster, cluster: KafkaBrokers) -> None:
        leader = await cluster.leader(*ORDERS)
        cut = DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=50)])
        await leader.request(DeleteRecordsRequest(topics=[cut], timeout_ms=9_000), 2, DeleteRecordsResponse)
        with pytest.raises(RequestRefused, match="partition 0 of topic 'orders' at offset 20") as caught:
            await offsets_of(cluster, 20, 60)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        old = (await cluster.topic("orders")).id
        broker = await cluster.any_broker()
        deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=9_000)
        await broker.request(deleted, 6, DeleteTopicsResponse)
        cluster.forget("orders")
        await create(cluster)
        with pytest.raises(RequestRefused, match="UNKNOWN_TOPIC_ID"):
            await anext(read_batches(cluster, ORDERS, old, 60, 80))

    with_records(work)


def test_an_answer_without_a_whole_batch_is_refused_and_a_cut_last_batch_is_left_out() -> None:
    batch = build_batch([Record(), Record(1)], base_timestamp=0, base_offset=7)
    found = split(memoryview(batch + batch[:-1]), 7, 20)
    assert (found.batches, found.next_offset) == ([batch], 9)
    with pytest.raises(MalformedBatch):
        split(memoryview(batch[:-1]), 7, 20)
    assert split(memoryview(b""), 7, 20) == ([], 7)
    assert split(memoryview(batch), 7, 7) == ([], 7)
