"""The brokers of a cluster as a client of Kafka's protocol sees them: leaders, their loss, and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from gnomon.client.kafka.brokers import KafkaBrokers, UnknownTopic
from gnomon.client.kafka.connection import KafkaClientConnection
from gnomon.client.kafka.errors import RequestRefused, check
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import KAFKA_PORT, BrokerCluster
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

LEASE_SECONDS = 3.0
PARTITIONS = 8
PATIENCE_SECONDS = 20.0


def with_two_brokers(work: Callable[[BrokerCluster, KafkaBrokers], Awaitable[None]]) -> None:
    """Runs `work` on a client of two brokers, with the topic `orders`."""

    async def scenario(simulation: Simulation) -> None:
        brokers = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await brokers.start()

        async def client(wire: WireCluster) -> None:
            async with KafkaBrokers(wire.world, brokers.bootstrap, patience_seconds=PATIENCE_SECONDS) as cluster:
                orders = CreatableTopic(name="orders", num_partitions=PARTITIONS, replication_factor=-1)
                broker = await cluster.any_broker()
                await broker.request(CreateTopicsRequest(topics=[orders]), 7, CreateTopicsResponse)
                await work(brokers, cluster)

        await brokers.run_client("client", client)

    simulate(1, scenario)


async def end_of(cluster: KafkaBrokers, partition: int) -> int:
    """The end of a partition, which only its leader tells."""
    leader = await cluster.leader("orders", partition)
    asked = [ListOffsetsPartition(partition_index=partition, timestamp=-1)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=asked)])
    found = (await leader.request(request, 7, ListOffsetsResponse)).topics[0].partitions[0]
    check(found.error_code, f"partition {partition} of topic 'orders'")
    return found.offset


def test_each_partition_is_asked_at_its_leader_over_one_connection_to_each_broker() -> None:
    async def work(brokers: BrokerCluster, cluster: KafkaBrokers) -> None:
        leaders: dict[int, KafkaClientConnection] = {}

        async def ask(partition: int) -> None:
            assert await end_of(cluster, partition) == 0
            leaders[partition] = await cluster.leader("orders", partition)

        async with trio.open_nursery() as nursery:
            for partition in range(PARTITIONS):
                nursery.start_soon(ask, partition)
        for partition, connection in leaders.items():
            assert connection.connection.peer == f"broker-{brokers.leader('orders', partition)}:{KAFKA_PORT}"
        assert len(set(leaders.values())) == 2

    with_two_brokers(work)


def test_an_attempt_reaches_the_next_leader_after_the_first_was_killed() -> None:
    async def work(brokers: BrokerCluster, cluster: KafkaBrokers) -> None:
        victim = brokers.leader("orders", 0)
        assert await end_of(cluster, 0) == 0
        brokers.brokers[victim].kill()
        with pytest.raises(Unreachable):
            await end_of(cluster, 0)
        began = brokers.simulation.clock.monotonic()
        assert await cluster.retried("orders", lambda: end_of(cluster, 0)) == 0
        assert brokers.simulation.clock.monotonic() - began < LEASE_SECONDS + 2

    with_two_brokers(work)


def test_without_any_broker_the_last_failure_is_raised_after_the_patience() -> None:
    async def work(brokers: BrokerCluster, cluster: KafkaBrokers) -> None:
        for machine in brokers.brokers.values():
            machine.kill()
        began = brokers.simulation.clock.monotonic()
        with pytest.raises(Unreachable, match=r"no broker answers: .*broker-1.*broker-2"):
            await cluster.retried("orders", lambda: end_of(cluster, 0))
        assert brokers.simulation.clock.monotonic() - began == pytest.approx(PATIENCE_SECONDS, abs=2)

    with_two_brokers(work)


def test_the_patience_is_a_minute_by_default() -> None:
    async def work(brokers: BrokerCluster, cluster: KafkaBrokers) -> None:
        for machine in brokers.brokers.values():
            machine.kill()
        clock = brokers.simulation.clock
        async with KafkaBrokers(cluster.world, brokers.bootstrap) as patient:
            began = clock.monotonic()
            with pytest.raises(Unreachable, match="no broker answers"):
                await patient.retried("orders", lambda: end_of(patient, 0))
            assert clock.monotonic() - began == pytest.approx(60, abs=2)

    with_two_brokers(work)


def test_a_final_error_is_raised_at_once() -> None:
    async def work(brokers: BrokerCluster, cluster: KafkaBrokers) -> None:
        began = brokers.simulation.clock.monotonic()
        with pytest.raises(UnknownTopic, match=r"topic 'missing': .*UNKNOWN_TOPIC_OR_PARTITION"):
            await cluster.retried("missing", lambda: cluster.leader("missing", 0))
        with pytest.raises(UnknownTopic, match="partition 8 of topic 'orders'"):
            await cluster.retried("orders", lambda: cluster.leader("orders", PARTITIONS))
        with pytest.raises(RequestRefused, match=r"topic 'a b': .*INVALID_TOPIC_EXCEPTION"):
            await cluster.retried("a b", lambda: cluster.topic("a b"))
        assert brokers.simulation.clock.monotonic() - began < 1

    with_two_brokers(work)


def test_a_partition_that_was_added_is_found() -> None:
    async def work(_: BrokerCluster, cluster: KafkaBrokers) -> None:
        await cluster.leader("orders", 0)
        grown = CreatePartitionsTopic(name="orders", count=PARTITIONS + 1, assignments=None)
        broker = await cluster.any_broker()
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=9_000)
        await broker.request(request, 1, CreatePartitionsResponse)
        assert await end_of(cluster, PARTITIONS) == 0

    with_two_brokers(work)


def test_all_topics_are_listed() -> None:
    async def work(brokers: BrokerCluster, cluster: KafkaBrokers) -> None:
        found = await cluster.topics()
        assert {name: sorted(topic.leaders) for name, topic in found.items()} == {"orders": list(range(PARTITIONS))}

    with_two_brokers(work)


@pytest.mark.parametrize(
    ("code", "text", "told"),
    [
        (6, None, "orders: another broker leads this partition; ask for metadata again (NOT_LEADER_OR_FOLLOWER)"),
        (44, "no", "orders: no (POLICY_VIOLATION)"),
        (9_999, "new", "orders: error 9999, which this client does not know: new (UNKNOWN_SERVER_ERROR)"),
    ],
)
def test_an_error_names_its_subject_its_reason_and_its_code(code: int, text: str | None, told: str) -> None:
    check(0, "orders")
    with pytest.raises(RequestRefused) as caught:
        check(code, "orders", text)
    assert str(caught.value) == told
    assert caught.value.code == (code if code < 100 else ErrorCode.UNKNOWN_SERVER_ERROR)
