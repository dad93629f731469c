"""Several brokers on simulated machines, over a `LedgerCluster`.

    cluster = BrokerCluster(simulation, brokers=2)
    await cluster.start()
    async def work(client): ...                    # `client` is a `WireCluster` that knows all brokers
    await cluster.run_client("client", work)

Brokers are machines `broker-1` …, with the ids 1 …. A test may kill them, cut their links, terminate them and start
them again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias, TypeVar

import trio

from gnomon.bookie.registry import RegisteredBookies
from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.broker.clustered import BrokerNodeSettings, run_broker
from gnomon.broker.node import Endpoints, ServingBroker
from gnomon.metadata.client import MetadataUnavailable
from gnomon.metadata.remote import RemoteMetadata
from gnomon.runtime.settings.listeners import KafkaListener
from gnomon.runtime.settings.settings import ShadowReplicationSettings
from gnomon.testing.simulation.machine import Machine, Node, result_of
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA, METADATA_PORT, START_AGAIN_SECONDS, LedgerCluster
from gnomon.testing.storms.metadata.counting_metadata import Cost, CountingMetadata
from gnomon.testing.storms.tables.table_settings import drawn_table_settings

T = TypeVar("T")

Tenant: TypeAlias = Callable[[SimulatedWorld, ServingBroker], Awaitable[None]]

KAFKA_PORT = 9092
NATIVE_PORT = 6650


class BrokerCluster:
    """The machines of the brokers, and the ledger cluster below them.

    Args:
        kafka: settings of all brokers by Kafka's names.
        listeners: the listeners of a broker by its number; PLAINTEXT at KAFKA_PORT unless given.
        tenant: a task that runs in each broker from the moment it serves; cancelled at the broker's end.
        label_sets_max: the setting `metrics.label_sets_max`.
    """

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
        listeners: Callable[[int], Sequence[KafkaListener]] | None = None,
        tenant: Tenant | None = None,
        label_sets_max: int = 0,
    ) -> None:
        self.simulation = simulation
        self.ledgers = LedgerCluster(simulation, bookies, lease_seconds=lease_seconds, audit=audit)
        self.brokers = {number: simulation.machine(f"broker-{number}") for number in range(1, brokers + 1)}
        self.bootstrap = [(machine.name, KAFKA_PORT) for machine in self.brokers.values()]
        self.serving: dict[int, ServingBroker] = {}
        """The parts of each broker, once it serves."""
        self.counting: dict[int, CountingMetadata] = {}
        """The client of each broker to the metadata service, which counts calls."""
        self.start_costs: dict[int, Cost] = {}
        """The cost of each broker's calls to the metadata service from its start until it serves."""
        self._lease_seconds = lease_seconds
        self._kafka = dict(kafka or {})
        self._listeners = listeners or _plaintext
        self._tenant = tenant
        self._label_sets_max = label_sets_max
        self._replication = replication or ShadowReplicationSettings()

    async def start(self) -> None:
        """Starts all machines and waits until every broker sees every other."""
        await self.ledgers.start()
        for number in self.brokers:
            self.start_broker(number)
        await self.settled(*self.brokers)

    def nodes(self) -> dict[str, Node]:
        """The node of each machine by name, those of bookies and the metadata service included."""
        brokers = {machine.name: self._node(number, number) for number, machine in self.brokers.items()}
        return {**self.ledgers.nodes(), **brokers}

    def start_broker(self, number: int, *, broker_id: int | None = None) -> None:
        """Starts a broker's machine."""
        self.serving.pop(number, None)
        self.brokers[number].start(self._node(number, broker_id or number))

    async def settled(self, *numbers: int) -> None:
        """Waits until these brokers serve, and each knows exactly these brokers."""
        while not all(
            number in self.serving
            and sorted(self.serving[number].broker.placement.leadership.leading) == sorted(numbers)
            for number in numbers
        ):
            await self.simulation.clock.sleep(0.01)

    def leader(self, topic: str, partition: int) -> int:
        """The leader of a partition, by the image of any running broker that knows the topic."""
        for number, serving in self.serving.items():
            if self.brokers[number].running and serving.broker.topics.image.get(topic) is not None:
                return self.leader_by(number, topic, partition)
        raise AssertionError(f"no running broker knows topic {topic!r}")

    def leader_by(self, number: int, topic: str, partition: int) -> int:
        """The leader of a partition, by the image of one broker, which must know the topic."""
        broker = self.serving[number].broker
        return broker.placement.leader(broker.topics.find(topic), partition)

    async def run_client(self, name: str, work: Callable[[WireCluster], Awaitable[T]]) -> T:
        """Runs `work` on a machine of its own until it is done; returns its result."""
        return await result_of(self.start_client, name, work)

    def start_client(self, name: str, work: Callable[[WireCluster], Awaitable[object]]) -> Machine:
        """Starts a machine that runs `work`; returns the machine."""

        async def node(world: SimulatedWorld) -> None:
            await work(WireCluster(world, self.bootstrap, name))

        machine = self.simulation.machine(name)
        machine.start(node)
        return machine

    def _node(self, number: int, broker_id: int) -> Node:
        async def node(world: SimulatedWorld) -> None:
            settings = BrokerNodeSettings(
                Endpoints(self._listeners(number), "", NATIVE_PORT),
                lease_seconds=self._lease_seconds,
                shadow_replication=self._replication,
                table=drawn_table_settings(world, Path("/data")),
                data_dir=Path("/data"),
                label_sets_max=self._label_sets_max,
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
                        await world.clock.sleep(START_AGAIN_SECONDS)  # as a supervisor of the process does
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
                    if self._tenant is not None:
                        nursery.start_soon(self._tenant, world, serving)

                bookies = RegisteredBookies(world, metadata, world.logger, nursery)
                await bookies.load()
                nursery.start_soon(bookies.run)
                await run_broker(
                    world, metadata, bookies, settings, world.logger, ready=ready, stop=world.stop_requested
                )
            nursery.cancel_scope.cancel()


def _plaintext(number: int) -> Sequence[KafkaListener]:
    return (KafkaListener("PLAINTEXT", "", KAFKA_PORT, f"broker-{number}"),)
