"""Native clients of several brokers, on simulated machines: leaders move, brokers die, links are cut."""

from __future__ import annotations

from functools import partial

import trio
from native_calls import FLUSHED_SECONDS

from gnomon.client.client import NativeClient, Type, connect
from gnomon.client.consumer import Consumer
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedProducer
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

LEASE_SECONDS = 3.0


async def produce(client: WireCluster, partition: int, first: int, count: int) -> None:
    producer = SimulatedProducer(client, "orders", {partition: LogHistory()}, name="producer")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.run)
        for number in range(first, first + count):
            producer.send(f"{partition}/{number}".encode(), partition)
            await client.world.clock.sleep(0.005)
        await producer.flush()
        nursery.cancel_scope.cancel()


class Reader:
    """A client on its own machine with one consumer; it keeps the values that the consumer has received."""

    def __init__(
        self, cluster: BrokerCluster, name: str, kind: Type = "exclusive", topic: str = "orders", acks: bool = True
    ) -> None:
        self.got: list[str] = []
        self.topic = topic
        self.cluster = cluster
        self.kind = kind
        self.acks = acks
        self.consumer: Consumer | None = None
        self.subscribed = trio.Event()
        self.machine = cluster.start_client(name, self._run)

    async def _run(self, client: WireCluster) -> None:
        addresses = ",".join(f"broker-{number}:{NATIVE_PORT}" for number in self.cluster.brokers)
        async with connect(addresses, world=client.world) as native:
            await self._read(native)

    async def _read(self, native: NativeClient) -> None:
        self.consumer = await native.subscribe(self.topic, "billing", type=self.kind, initial_position="earliest")
        self.subscribed.set()
        async for message in self.consumer:
            self.got.append((message.value or b"").decode())
            if self.acks:
                self.consumer.ack(message)

    async def until(self, count: int) -> None:
        """Waits until `count` different records have been received."""
        while len(set(self.got)) < count:
            await self.cluster.simulation.clock.sleep(0.05)


def values(partition: int, count: int) -> list[str]:
    return [f"{partition}/{number}" for number in range(count)]


async def create(client: WireCluster, partitions: int) -> None:
    connection = await client.connect()
    topic = CreatableTopic(name="orders", num_partitions=partitions, replication_factor=-1)
    answer = await connection.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def cast(client: WireCluster, shadow: str) -> None:
    connection = await client.connect()
    source = CreatableTopicConfig(name="gnomon.shadow.source", value="orders")
    topic = CreatableTopic(name=shadow, num_partitions=-1, replication_factor=-1, configs=[source])
    answer = await connection.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def orders(cluster: BrokerCluster, partitions: int) -> None:
    await cluster.start()
    await cluster.run_client("admin", partial(create, partitions=partitions))
    for serving in cluster.serving.values():  # a broker that lags would answer that the topic does not exist
        await serving.broker.records.current("orders")


def test_consumers_of_shadows_find_the_leaders_of_the_shadows() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await orders(cluster, 1)
        for name in ("one", "two"):
            await cluster.run_client(f"cast-{name}", partial(cast, shadow=name))
        readers = [Reader(cluster, f"reader-{topic}", topic=topic) for topic in ("orders", "one", "two")]
        await cluster.run_client("first", partial(produce, partition=0, first=0, count=50))
        for reader in readers:
            await reader.until(50)
            assert reader.got == values(0, 50)

    simulate(1, scenario)


def test_a_consumer_continues_at_the_next_leader_after_its_leader_dies_and_misses_nothing() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await orders(cluster, 1)
        reader = Reader(cluster, "reader")
        await cluster.run_client("first", partial(produce, partition=0, first=0, count=100))
        await reader.until(100)
        await simulation.clock.sleep(FLUSHED_SECONDS)
        cluster.brokers[cluster.leader("orders", 0)].kill()
        await cluster.run_client("second", partial(produce, partition=0, first=100, count=50))
        await reader.until(150)
        assert reader.got == values(0, 150), "positions were stored: nothing comes again either"

    simulate(1, scenario)


def test_the_consumers_of_a_source_and_its_shadows_each_find_their_leaders() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await orders(cluster, 4)
        shadows = ["reports", "search"]
        for shadow in shadows:
            await cluster.run_client(f"cast-{shadow}", partial(cast, shadow=shadow))
        readers = [Reader(cluster, f"reader-of-{topic}", topic=topic) for topic in ("orders", *shadows)]
        for partition in range(4):
            await cluster.run_client(f"first-{partition}", partial(produce, partition=partition, first=0, count=20))
        for reader in readers:
            await reader.until(80)
        assert cluster.leader("orders", 0) != cluster.leader("reports", 0)

    simulate(5, scenario)


def test_a_broker_that_ends_stores_positions_and_its_consumers_continue_elsewhere() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await orders(cluster, 4)
        reader = Reader(cluster, "reader")
        for partition in range(4):
            await cluster.run_client(f"first-{partition}", partial(produce, partition=partition, first=0, count=20))
        await reader.until(80)
        await simulation.clock.sleep(0.1)
        victim = cluster.leader("orders", 0)
        cluster.brokers[victim].terminate()
        await simulation.clock.sleep(5.0)
        for partition in range(4):
            await cluster.run_client(f"second-{partition}", partial(produce, partition=partition, first=20, count=20))
        await reader.until(160)
        for partition in range(4):
            assert [each for each in reader.got if each.startswith(f"{partition}/")] == values(partition, 40)

    simulate(2, scenario)


def test_unacknowledged_records_of_a_dead_client_are_delivered_to_other_consumers() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await orders(cluster, 1)
        silent, other = Reader(cluster, "silent", "shared", acks=False), Reader(cluster, "other", "shared")
        for reader in (silent, other):
            await reader.subscribed.wait()
        await cluster.run_client("first", partial(produce, partition=0, first=0, count=50))
        assert set(silent.got) - set(other.got)
        silent.machine.kill()
        await cluster.run_client("second", partial(produce, partition=0, first=50, count=50))
        await other.until(100)

    simulate(3, scenario)


def test_a_client_whose_connection_was_cut_resumes() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 2, lease_seconds=LEASE_SECONDS)
        await orders(cluster, 1)
        reader = Reader(cluster, "reader")
        await cluster.run_client("first", partial(produce, partition=0, first=0, count=20))
        await reader.until(20)
        leader = f"broker-{cluster.leader('orders', 0)}"
        simulation.network.block("reader", leader)
        await cluster.run_client("second", partial(produce, partition=0, first=20, count=20))
        await simulation.clock.sleep(20.0)
        simulation.network.unblock("reader", leader)
        await reader.until(40)

    simulate(4, scenario)


def test_acknowledged_records_are_not_delivered_again_by_a_shadow_that_lags() -> None:
    """The source's broker dies before bookies know that its last entry is confirmed; then the shadow's broker dies."""

    async def scenario(simulation: Simulation) -> None:
        cluster, clock = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS), simulation.clock
        await orders(cluster, 1)
        await cluster.run_client("cast", partial(cast, shadow="copy"))
        reader = Reader(cluster, "reader", topic="copy")
        await cluster.run_client("first", partial(produce, partition=0, first=0, count=1))
        await reader.until(1)
        await clock.sleep(FLUSHED_SECONDS)
        source, shadow = cluster.leader("orders", 0), cluster.leader("copy", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.run_client, "second", partial(produce, partition=0, first=1, count=2))
            while len(reader.got) < 3:
                await clock.sleep(0.0001)
            cluster.brokers[source].kill()
            nursery.cancel_scope.cancel()
        await clock.sleep(FLUSHED_SECONDS)
        cluster.brokers[shadow].kill()
        await clock.sleep(5 * LEASE_SECONDS)
        await cluster.run_client("third", partial(produce, partition=0, first=3, count=1))
        await reader.until(4)
        assert reader.got == values(0, 4)

    simulate(1, scenario)


def test_an_operator_sees_and_moves_a_subscription_whose_partitions_several_brokers_lead() -> None:
    async def operate(client: WireCluster) -> None:
        async with connect(f"broker-1:{NATIVE_PORT}", world=client.world) as native:
            (listed,) = await native.subscriptions.list("orders")
            assert (listed.name, listed.backlog_records, listed.partitions) == ("billing", 40, 4)
            described = await native.subscriptions.describe("orders", "billing")
            assert [each.end for each in described.partitions] == [10] * 4
            assert len({each.broker for each in described.partitions}) > 1
            assert await native.subscriptions.seek_to_offset("orders", "billing", 4) == dict.fromkeys(range(4), 4)
            await native.subscriptions.delete("orders", "billing")
            assert await native.subscriptions.list("orders") == []

    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, lease_seconds=LEASE_SECONDS)
        await orders(cluster, 4)
        reader = Reader(cluster, "reader", acks=False)
        await reader.subscribed.wait()
        for partition in range(4):
            await cluster.run_client(f"p-{partition}", partial(produce, partition=partition, first=0, count=10))
        await reader.until(40)
        reader.machine.kill()
        await simulation.clock.sleep(FLUSHED_SECONDS)
        await cluster.run_client("operator", operate)

    simulate(1, scenario)
