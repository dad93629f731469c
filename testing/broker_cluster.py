"""Several brokers on simulated machines, over a `LedgerCluster`.

    cluster = BrokerCluster(simulation, brokers=2)
    await cluster.start()
    async def work(client): ...                    # a `KafkaCluster` that knows all brokers
    await cluster.run_client("client", work)

Brokers are machines `broker-1` …, with the ids 1 …; kill them, cut their links, terminate them, start them again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import TypeVar

import trio

from gnomon.bookie.auditor import AuditSettings
from gnomon.bookie.registry import RegisteredBookies
from gnomon.broker.node import BrokerNodeSettings, ServingBroker, run_broker
from gnomon.metadata.client import MetadataUnavailable
from gnomon.metadata.remote import RemoteMetadata
from gnomon.runtime.settings import ShadowReplicationSettings
from gnomon.testing.counting_metadata import Cost, CountingMetadata
from gnomon.testing.ledger_cluster import METADATA, METADATA_PORT, START_AGAIN_SECONDS, LedgerCluster
from gnomon.testing.machine import Machine, Node, result_of
from gnomon.testing.simulated_world import SimulatedWorld
from gnomon.testing.simulation import Simulation
from gnomon.testing.wire_client import KafkaCluster

T = TypeVar("T")

KAFKA_PORT = 9092
NATIVE_PORT = 6650


class BrokerCluster:
    """The machines; `kafka` are settings of all brokers by Kafka's names."""

    def __init__(
        self,
        simulation: Simulation,
        brokers: int = 2,
        bookies: int = 3,
        *,
        lease_seconds: float = 3.0,
        kafka: Mapping[str, str] | None = None,
        audit: AuditSettings | None = None,
        replication: ShadowReplicationSettings | None = None,
    ) -> None:
        self.simulation = simulation
        self.ledgers = LedgerCluster(simulation, bookies, lease_seconds=lease_seconds, audit=audit)
        self.brokers = {number: simulation.machine(f"broker-{number}") for number in range(1, brokers + 1)}
        self.bootstrap = [(machine.name, KAFKA_PORT) for machine in self.brokers.values()]
        self.serving: dict[int, ServingBroker] = {}
        """The inside of each broker, once it serves."""
        self.counting: dict[int, CountingMetadata] = {}
        """What each broker asks the metadata service."""
        self.start_costs: dict[int, Cost] = {}
        """The same, from the start of each broker until it serves."""
        self._lease_seconds = lease_seconds
        self._kafka = dict(kafka or {})
        self._replication = replication or ShadowReplicationSettings()

    async def start(self) -> None:
        """Starts all machines and waits until every broker sees every other."""
        await self.ledgers.start()
        for number in self.brokers:
            self.start_broker(number)
        await self.settled(*self.brokers)

    def nodes(self) -> dict[str, Node]:
        """What runs on each machine, bookies and metadata among them."""
        brokers = {machine.name: self._node(number, number) for number, machine in self.brokers.items()}
        return {**self.ledgers.nodes(), **brokers}

    def start_broker(self, number: int, *, broker_id: int | None = None) -> None:
        """Starts a broker's machine."""
        self.serving.pop(number, None)
        self.brokers[number].start(self._node(number, broker_id or number))

    async def settled(self, *numbers: int) -> None:
        """Waits until these brokers serve, and know of each other and of nobody else."""
        while not all(
            number in self.serving and sorted(self.serving[number].broker.leadership.leading) == sorted(numbers)
            for number in numbers
        ):
            await self.simulation.clock.sleep(0.01)

    def leader(self, topic: str, partition: int) -> int:
        """Who leads a partition, by the image of any broker that lives and knows the topic."""
        for number, serving in self.serving.items():
            if self.brokers[number].running and serving.broker.image.get(topic) is not None:
                return self.leader_by(number, topic, partition)
        raise AssertionError(f"topic {topic!r} is not there yet")

    def leader_by(self, number: int, topic: str, partition: int) -> int:
        """Who leads a partition, by the image of one broker, which knows the topic."""
        broker = self.serving[number].broker
        return broker.leader(broker.find_topic(topic), partition)

    async def run_client(self, name: str, work: Callable[[KafkaCluster], Awaitable[T]]) -> T:
        """Runs `work` on a machine of its own until it is done, and gives what it returns."""
        return await result_of(self.start_client, name, work)

    def start_client(self, name: str, work: Callable[[KafkaCluster], Awaitable[object]]) -> Machine:
        """Starts a machine that runs `work`, and gives it."""

        async def node(world: SimulatedWorld) -> None:
            await work(KafkaCluster(world, self.bootstrap, name))

        machine = self.simulation.machine(name)
        machine.start(node)
        return machine

    def _node(self, number: int, broker_id: int) -> Node:
        async def node(world: SimulatedWorld) -> None:
            settings = BrokerNodeSettings(
                host="",
                port=KAFKA_PORT,
                native_host="",
                native_port=NATIVE_PORT,
                advertised_host=f"broker-{number}",
                lease_seconds=self._lease_seconds,
                shadow_replication=self._replication,
                kafka={"broker.id": str(broker_id), **self._kafka},
            )
            async with trio.open_nursery() as nursery:
                remote = RemoteMetadata(world, [(METADATA, METADATA_PORT)])
                nursery.start_soon(remote.run)
                metadata = self.counting[number] = CountingMetadata(remote)
                while not world.stop_requested.is_set():
                    try:
                        await self._serve(number, world, metadata, settings)
                    except* MetadataUnavailable:
                        await world.clock.sleep(START_AGAIN_SECONDS)  # as whoever keeps it running does
                nursery.cancel_scope.cancel()

        return node

    async def _serve(
        self, number: int, world: SimulatedWorld, metadata: CountingMetadata, settings: BrokerNodeSettings
    ) -> None:
        async with trio.open_nursery() as nursery:
            with ExitStack() as starting:
                self.start_costs[number] = starting.enter_context(metadata.measure())

                def ready(serving: ServingBroker) -> None:
                    starting.close()
                    self.serving[number] = serving

                bookies = RegisteredBookies(world, metadata, world.logger, nursery)
                await bookies.load()
                nursery.start_soon(bookies.run)
                await run_broker(
                    world, metadata, bookies, settings, world.logger, ready=ready, stop=world.stop_requested
                )
            nursery.cancel_scope.cancel()
