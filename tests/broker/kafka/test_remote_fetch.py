"""Fetches at a broker whose bookies are on other machines (numbers: invariants of `poll`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gnomon.bookie.ledgers.catalog import EntryCache
from gnomon.broker.broker import Broker
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

pytestmark = pytest.mark.usefixtures("either_poll")

TINY = 1
AMPLE = 1 << 24

RETRIED = (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class House:
    """A broker whose memory has no record that was produced before it started."""

    def __init__(self, cluster: BrokerCluster, broker: Broker) -> None:
        self.cluster = cluster
        self.broker = broker
        self.bookies = cluster.ledgers.bookies.values()


async def leader(client: WireCluster) -> WireConnection:
    while True:
        try:
            return await client.leader("t", 0)
        except Unreachable:
            await client.world.clock.sleep(0.1)


def play(batches: int, cache_bytes: int, read: Callable[[House, WireConnection], Awaitable[None]]) -> None:
    """Produces `batches` batches of 1,000 bytes to each of two partitions, restarts the broker, and reads."""

    async def produce(client: WireCluster) -> None:
        connection = await leader(client)
        for number in range(batches):
            records = build_batch([Record(offset_delta=0, key=None, value=b"%01000d" % number)], base_timestamp=1)
            data = [PartitionProduceData(index=index, records=records) for index in range(2)]
            topic = TopicProduceData(name="t", partition_data=data)
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
            answer = await connection.request(request, 9, ProduceResponse)
            assert {one.error_code for one in answer.responses[0].partition_responses} == {ErrorCode.NONE}

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 1, kafka={"num.partitions": "2"})
        await cluster.start()
        await cluster.run_client("producer", produce)
        cluster.brokers[1].kill()
        cluster.start_broker(1)
        await cluster.settled(1)
        broker = cluster.serving[1].broker
        broker.storage.entries = EntryCache(broker.storage.bookies, cache_bytes)

        async def consume(client: WireCluster) -> None:
            connection = await leader(client)
            for index in range(2):  # opens the partition
                assert (await fetch(connection, {index: batches}, wait_ms=0))[index].error_code in RETRIED
            await client.world.clock.sleep(2)
            await read(House(cluster, broker), connection)

        await cluster.run_client("consumer", consume)
        await simulation.clock.sleep(20)
        assert broker.storage.entries.pins == {}

    simulate(1, scenario)


async def fetch(
    connection: WireConnection, offsets: dict[int, int], wait_ms: int = 500, bytes_max: int = 1 << 20
) -> dict[int, PartitionData]:
    """Fetches partitions from their offsets on; returns the answer for each."""
    answer = await connection.request(request(offsets, wait_ms, bytes_max), 11, FetchResponse)
    return {one.partition_index: one for one in answer.responses[0].partitions}


def request(offsets: dict[int, int], wait_ms: int = 500, bytes_max: int = 1 << 20) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
        for index, offset in offsets.items()
    ]
    topics = [FetchTopic(topic="t", partitions=wanted)]
    return FetchRequest(min_bytes=1, max_bytes=bytes_max, max_wait_ms=wait_ms, session_epoch=-1, topics=topics)


def numbers(fetched: PartitionData) -> list[int]:
    """The numbers that `play` produced as values."""
    assert fetched.error_code == ErrorCode.NONE
    found: list[int] = []
    left = memoryview(fetched.records or b"")
    while left:
        size = 12 + int.from_bytes(left[8:12], "big")
        found += [int(record.value or b"-1") for record in iterate_records(left[:size], 1 << 20)]
        assert parse_batch(left[:size]).base_offset == found[-1]
        left = left[size:]
    return found


@pytest.mark.parametrize("cache_bytes", [TINY, 20_000, AMPLE])
@pytest.mark.parametrize("bytes_max", [1, 5000, 1 << 20])
def test_a_consumer_reads_all_in_order_with_any_size_of_cache(cache_bytes: int, bytes_max: int) -> None:
    async def read(_house: House, connection: WireConnection) -> None:
        found: dict[int, list[int]] = {0: [], 1: []}
        while left := {index: len(have) for index, have in found.items() if len(have) < 60}:
            fetched = await fetch(connection, left, bytes_max=bytes_max)
            assert any(one.records for one in fetched.values())
            for index, one in fetched.items():
                found[index] += numbers(one)
                assert one.high_watermark == 60
            found = dict(reversed(found.items()))
        assert found == {0: list(range(60)), 1: list(range(60))}

    play(60, cache_bytes, read)


def test_a_poll_that_does_not_wait_for_records_waits_for_bookies() -> None:  # invariant 5
    async def read(house: House, connection: WireConnection) -> None:
        simulation = house.cluster.simulation
        for machine in house.bookies:
            simulation.network.block("broker-1", machine.name)
        answer = connection.send(request({0: 10}, wait_ms=0), 11)
        await simulation.clock.sleep(2)
        assert answer.message is None
        for machine in house.bookies:
            simulation.network.unblock("broker-1", machine.name)
        fetched: Any = await connection.wait(answer)
        assert numbers(fetched.responses[0].partitions[0])[0] == 10

    play(30, AMPLE, read)


def test_a_partition_with_entries_not_in_memory_does_not_delay_the_first_one() -> None:  # invariant 5
    async def read(_house: House, connection: WireConnection) -> None:
        assert numbers((await fetch(connection, {0: 0}))[0]) == list(range(30))
        both = await fetch(connection, {0: 0, 1: 0})
        assert numbers(both[0]) == list(range(30))
        assert numbers(both[1]) == []
        both = await fetch(connection, {1: 0, 0: 0})
        assert numbers(both[0]) == list(range(30))
        assert numbers(both[1]) == list(range(30))

    play(30, AMPLE, read)


def test_an_entry_that_no_bookie_returns_is_a_storage_error_until_one_does() -> None:
    async def read(house: House, connection: WireConnection) -> None:
        for machine in house.bookies:
            machine.kill()
        assert (await fetch(connection, {0: 0}))[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for machine in house.bookies:
            machine.start()
        await house.cluster.simulation.clock.sleep(10)
        assert numbers((await fetch(connection, {0: 0}))[0])[0] == 0

    play(30, AMPLE, read)


def test_a_client_that_disconnects_during_a_load_leaves_no_pins() -> None:
    async def read(house: House, connection: WireConnection) -> None:
        for machine in house.bookies:
            machine.kill()
        connection.send(request({0: 0, 1: 0}), 11)
        await house.cluster.simulation.clock.sleep(0.01)
        assert house.broker.storage.entries.pins
        connection.close()

    play(30, AMPLE, read)


def test_a_reader_at_the_end_asks_no_bookie() -> None:
    async def read(house: House, connection: WireConnection) -> None:
        before = house.broker.storage.entries.reads
        for number in range(30, 50):
            records = build_batch([Record(offset_delta=0, key=None, value=b"%d" % number)], base_timestamp=1)
            topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
            await connection.request(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9, ProduceResponse)
            assert numbers((await fetch(connection, {0: number}))[0]) == [number]
        assert house.broker.storage.entries.reads == before

    play(30, AMPLE, read)
