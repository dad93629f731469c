"""Partitions that move to another broker: no record is lost, duplicated, or acknowledged by two brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from cluster_calls import (
    LEASE_SECONDS,
    at,
    bring_back,
    cut_off,
    fetch,
    latest,
    lose_leader,
    on_one_partition,
    produce,
    produce_one,
    read_all,
    rejoin,
    unheard,
)

from gnomon.broker.partition.readable import REOPEN_SECONDS
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import KAFKA_PORT, BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory, check_log
from gnomon.testing.storms.kafka.log_clients import SimulatedConsumer
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.positions import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from gnomon.wire.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


def test_the_partitions_of_a_killed_broker_are_served_by_another_within_the_lease_plus_a_second() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("first", lambda client: produce(client, history, "first", 0, 20))
        victim = cluster.leader("orders", 0)
        cluster.brokers[victim].kill()
        killed_at = simulation.clock.monotonic()
        await cluster.run_client("second", lambda client: produce(client, history, "second", 0, 1))
        taken = simulation.clock.monotonic() - killed_at
        print(f"served elsewhere after {taken:.2f} s")
        assert taken <= LEASE_SECONDS + 1
        await cluster.run_client("reader", lambda client: read_all(client, history, 0))
        assert check_log(history) == []
        assert len(history.final) == 21

    simulate(1, scenario)


def test_idempotent_producers_lose_and_duplicate_nothing_while_brokers_are_killed() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        producer = cluster.start_client("producer", lambda client: produce(client, history, "producer", 0, 1200))

        async def consume(client: WireCluster) -> None:
            await SimulatedConsumer(client, "orders", 0, history, name="consumer").run()

        cluster.start_client("consumer", consume)
        await simulation.clock.sleep(3)
        for _ in range(2):
            victim = cluster.leader("orders", 0)
            cluster.brokers[victim].kill()
            await simulation.clock.sleep(LEASE_SECONDS + 2)
            cluster.start_broker(victim)
            await simulation.clock.sleep(2)
        if producer.process is not None:
            await producer.process.ended.wait()
        await cluster.run_client("reader", lambda client: read_all(client, history, 0))
        assert check_log(history) == []
        assert len(history.final) == 1200

    simulate(2, scenario)


def test_clients_see_a_rolling_restart_only_as_a_change_of_leader() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS, kafka={"num.partitions": "4"})
        await cluster.start()
        histories = [LogHistory() for _ in range(4)]
        producers = [
            cluster.start_client(
                f"producer-{index}", partial(produce, history=history, name="p", partition=index, count=600)
            )
            for index, history in enumerate(histories)
        ]
        await simulation.clock.sleep(1)
        for number, machine in cluster.brokers.items():
            process = machine.process
            assert process is not None
            machine.terminate()
            await process.ended.wait()
            assert not any(used.partition.log for used in cluster.serving[number].broker.partitions.with_own_log())
            cluster.start_broker(number)
            await cluster.settled(*cluster.brokers)
        for producer in producers:
            if producer.process is not None:
                await producer.process.ended.wait()
        for index, history in enumerate(histories):
            await cluster.run_client(f"reader-{index}", partial(read_all, history=history, partition=index))
            assert check_log(history) == []
            assert len(history.final) == 600

    simulate(3, scenario)


def test_leader_epochs_rise_with_each_claim_and_old_epochs_keep_their_end() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        connection = await at(client, cluster.leader("orders", 0))
        assert await produce_one(connection) is ErrorCode.NONE
        assert await latest(connection) == (ErrorCode.NONE, 1, 0)
        connection = await at(client, await lose_leader(cluster))
        assert await latest(connection) == (ErrorCode.NONE, 1, 1)
        assert await produce_one(connection) is ErrorCode.NONE
        for current, error in ((-1, 0), (0, 0), (1, 0), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            # librdkafka sends the epoch of the last record it read as the current epoch, which it does not know.
            wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=0)
            topic = OffsetForLeaderTopic(topic="orders", partitions=[wanted])
            answer = await connection.request(
                OffsetForLeaderEpochRequest(topics=[topic]), 4, OffsetForLeaderEpochResponse
            )
            found = answer.topics[0].partitions[0]
            assert found.error_code == error
            assert error or (found.leader_epoch, found.end_offset) == (0, 1)

    on_one_partition(5, 2, work)


def test_two_brokers_that_both_believe_they_lead_never_acknowledge_divergent_data() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await cluster.start()
        history = LogHistory()
        await cluster.run_client("first", lambda client: produce(client, history, "first", 0, 5))
        old = cluster.leader("orders", 0)
        new = 3 - old

        async def stubborn(client: WireCluster) -> None:
            """Produces as a client that knows only the old leader."""
            only = WireCluster(client.world, [(f"broker-{old}", KAFKA_PORT)], "stubborn")
            await produce(only, history, "stubborn", 0, 1000)

        producer = cluster.start_client("stubborn", stubborn)
        await simulation.clock.sleep(1)
        await cut_off(cluster, old)
        believed = cluster.serving[old].broker
        assert cluster.leader_by(old, "orders", 0) == old
        assert not believed.placement.lease_lives()
        await cluster.run_client("second", lambda client: produce_at(client, new, history))

        async def ask_the_old_one(client: WireCluster) -> None:
            assert (await latest(await at(client, old)))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER

        await cluster.run_client("reader", ask_the_old_one)
        bring_back(cluster, old)
        if producer.process is not None:
            await producer.process.ended.wait()
        await cluster.run_client("final", lambda client: read_all(client, history, 0))
        assert check_log(history) == []
        assert len(history.final) == 5 + 1000 + 50

    simulate(7, scenario)


def test_a_broker_that_was_cut_off_refuses_requests_until_it_knows_who_led_meanwhile() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        old = cluster.leader("orders", 0)
        new = 3 - old
        connection = await at(client, old)
        assert await produce_one(connection, producer_id=7, sequence=0) is ErrorCode.NONE
        await cut_off(cluster, old)
        for sequence in (1, 2):
            assert await produce_one(await at(client, new), producer_id=7, sequence=sequence) is ErrorCode.NONE
        with unheard(cluster, old) as heard:
            bring_back(cluster, old)
            await client.world.clock.sleep(LEASE_SECONDS)
            assert len(heard) == 2, "its registration did not end, or did not begin anew"
            assert await latest(connection) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
            again = await produce_one(connection, producer_id=7, sequence=2)
            assert again is ErrorCode.NOT_LEADER_OR_FOLLOWER, "a batch that is there was called missing"
        connection = await at(client, old)
        assert await produce_one(connection, producer_id=7, sequence=2) is ErrorCode.NONE
        assert await latest(connection) == (ErrorCode.NONE, 3, 2)

    on_one_partition(8, 2, work)


def test_a_producer_gets_an_out_of_order_error_only_while_the_metadata_answers() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        connection = await at(client, 1)
        assert await produce_one(connection, producer_id=7, sequence=0) is ErrorCode.NONE
        assert await produce_one(connection, producer_id=7, sequence=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        cluster.ledgers.metadata.power_off()
        assert await produce_one(connection, producer_id=7, sequence=2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await produce_one(connection, producer_id=7, sequence=1) is ErrorCode.NONE

    on_one_partition(9, 1, work)


@asynccontextmanager
async def replaced(cluster: BrokerCluster, client: WireCluster) -> AsyncIterator[tuple[WireConnection, int]]:
    """A connection to a leader that has one record and does not learn of its successor, which has two; and the
    successor's number."""
    new = cluster.leader("orders", 0)
    old = 3 - new
    cluster.brokers[new].kill()
    await cluster.settled(old)
    connection = await at(client, old)
    assert await produce_one(connection) is ErrorCode.NONE
    with unheard(cluster, old):
        await rejoin(cluster, new)
        assert await produce_one(await at(client, new)) is ErrorCode.NONE
        assert await fetch(connection, 1) == (ErrorCode.NONE, 1), "it has heard of it: the test shows nothing"
        yield connection, new


def test_a_replaced_leader_that_lags_redirects_a_reader_that_is_ahead_of_it() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        async with replaced(cluster, client) as (connection, new):
            for _ in range(3):
                assert await fetch(connection, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
                await client.world.clock.sleep(0.1)
        assert await fetch(await at(client, new), 2) == (ErrorCode.NONE, 2)

    on_one_partition(10, 2, work)


def test_a_replaced_leader_that_lags_does_not_call_an_offset_to_delete_to_beyond_the_end() -> None:
    async def delete(connection: WireConnection, offset: int) -> ErrorCode:
        topic = DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
        answer = await connection.request(DeleteRecordsRequest(topics=[topic]), 2, DeleteRecordsResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        async with replaced(cluster, client) as (connection, new):
            assert await delete(connection, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        connection = await at(client, new)
        assert await delete(connection, 2) is ErrorCode.NONE
        assert await delete(connection, 7) is ErrorCode.OFFSET_OUT_OF_RANGE

    on_one_partition(10, 2, work)


def test_a_reader_beyond_the_end_gets_offset_out_of_range_on_its_second_fetch() -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        connection = await at(client, 1)
        assert await produce_one(connection) is ErrorCode.NONE
        answers = []
        for offset in (7, 7, 7, 7, 1):
            answers.append((await fetch(connection, offset))[0])
            await client.world.clock.sleep(0.1)
        again = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE]
        assert answers == [*again, *again, ErrorCode.NONE]

    on_one_partition(11, 1, work)


async def fetch_behind_it(connection: WireConnection) -> ErrorCode:
    return (await fetch(connection, 2))[0]


@pytest.mark.parametrize("ask", [fetch_behind_it, partial(produce_one, producer_id=7, sequence=2)])
def test_a_leader_learns_by_read_index_that_a_broker_that_lags_has_claimed_its_log(
    ask: Callable[[WireConnection], Awaitable[ErrorCode]],
) -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        new = cluster.leader("orders", 0)
        old = 3 - new
        cluster.brokers[new].kill()
        await cluster.settled(old)
        with unheard(cluster, old):
            await rejoin(cluster, new)
            assert await produce_one(await at(client, new), producer_id=7, sequence=0) is ErrorCode.NONE
            assert await produce_one(await at(client, old), producer_id=7, sequence=1) is ErrorCode.NONE
        connection = await at(client, new)
        assert await latest(connection) == (ErrorCode.NONE, 1, 0), "it knows: the test shows nothing"
        assert await ask(connection) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await client.world.clock.sleep(2 * REOPEN_SECONDS)
        assert await latest(connection) == (ErrorCode.NONE, 2, 2)
        assert await ask(connection) is ErrorCode.NONE

    on_one_partition(12, 2, work)


async def produce_at(client: WireCluster, number: int, history: LogHistory) -> None:
    only = WireCluster(client.world, [(f"broker-{number}", KAFKA_PORT)], "second")
    await produce(only, history, "second", 0, 50)
