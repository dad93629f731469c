"""The nodes of a storm as its judges see them: the brokers that serve, the stores, and the metadata.

    with roll_call(simulation) as roll:
        await scenario(simulation)
        roll.brokers()

The product has no hook for it: its functions are wrapped from outside. A node that was replaced by a later start of its
machine is not on the roll.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gnomon.bookie.ids import NO_ENTRY, BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.bookie.storage.garbage import GarbageCollector
from gnomon.broker import clustered, standalone
from gnomon.broker.kafka.poll import RecentAnswers
from gnomon.broker.node import ServingBroker
from gnomon.broker.stores import BOOKIE_NAME
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.metadata.state import State
from gnomon.testing.simulation.disk.simulated_disk import SimulatedEnvironment
from gnomon.testing.simulation.faults import Storm
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.simulation.process import SimulatedProcess
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA
from gnomon.testing.storms.patches import Patches
from gnomon.testing.storms.rest.finding import Facts
from gnomon.testing.storms.rest.sizes import Sizes, sizes_of

BROKER: Final = "broker"
"""Begins the names of the machines of brokers."""
BARRIERS: Final = (EmbeddedMetadata, EntryStore, GarbageCollector, RecentAnswers)
"""The objects of a broker that are not searched. They are judged elsewhere, or hold a bounded number of answers with
their partitions."""


@dataclass(frozen=True, slots=True)
class BrokerOnDuty:
    """A broker that serves, and its sizes at the moment when it began to serve."""

    machine: Machine
    process: SimulatedProcess
    serving: ServingBroker
    fresh: Sizes

    @property
    def on_duty(self) -> bool:
        """Whether this process still runs."""
        return self.machine.process is self.process

    def sizes(self) -> Sizes:
        """The sizes of this moment."""
        return sizes_of(self.serving, BARRIERS)


@dataclass(frozen=True, slots=True)
class StoreOnDuty:
    """The store of a bookie that runs."""

    bookie: BookieId
    machine: Machine
    path: Path
    environment: SimulatedEnvironment
    store: EntryStore
    garbage: GarbageCollector

    def flipped(self) -> list[bytes]:
        """The keys of the values in which a bit was flipped."""
        return [key for path, key in self.machine.disk.flipped if path == self.path]

    def explicit_lac(self, ledger: LedgerId, session: SessionId) -> EntryId:
        """The last add confirmed in the store's memory, if a session up to this one said it; NO_ENTRY otherwise."""
        known = self.store.ledgers.known.get(ledger)
        return known.confirmed if known is not None and known.confirmed_in <= session else NO_ENTRY


class Roll:
    """The nodes that were started; see the module."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._brokers: dict[str, BrokerOnDuty] = {}
        self._stores: dict[int, EntryStore] = {}
        self._garbage: dict[int, GarbageCollector] = {}
        self._metadata: EmbeddedMetadata | None = None
        self._bookies: dict[str, None] = {}
        """The machines that have opened a store."""
        self._disturbed: dict[str, None] = {}
        """The machines of the nodes that storms disturb, also of nodes that have never come to serve."""

    @property
    def brokers_known(self) -> list[str]:
        """The machines of all brokers, also of those that a storm has killed before they served for the first time."""
        return list({**self._brokers, **{name: None for name in self._disturbed if name.startswith(BROKER)}})

    @property
    def machines(self) -> set[str]:
        """The machines of all nodes, also of those that are down."""
        return {*self.brokers_known, *self._bookies, *self._disturbed, METADATA}

    def facts(self) -> Facts:
        """The topics, ledgers and nodes of this moment."""
        return Facts.of(self.state(), len(self.brokers_known), len(self._bookies))

    def brokers(self) -> list[BrokerOnDuty]:
        """The brokers that serve."""
        return [each for each in self._brokers.values() if each.on_duty]

    def stores(self) -> list[StoreOnDuty]:
        """The stores of the bookies that run."""
        found = []
        for machine in self._simulation.machines.values():
            for path, environment in machine.disk.environments.items():
                store = self._stores.get(id(environment))
                if store is not None and id(store) in self._garbage:
                    name = BookieId(machine.name) if machine.name not in self._brokers else BOOKIE_NAME
                    found.append(StoreOnDuty(name, machine, path, environment, store, self._garbage[id(store)]))
        return found

    def state(self) -> State:
        """The keys of the metadata."""
        assert self._metadata is not None, "no metadata service was started"
        return self._metadata._state

    # --- taken down by the wrapped functions ---

    def serves(self, process: SimulatedProcess, serving: ServingBroker) -> None:
        """A broker begins to serve."""
        machine = self._simulation.machine(process.machine_name)
        self._brokers[machine.name] = BrokerOnDuty(machine, process, serving, sizes_of(serving, BARRIERS))

    def opened(self, environment: SimulatedEnvironment, store: EntryStore) -> None:
        """A store was opened."""
        self._stores[id(environment)] = store
        for machine in self._simulation.machines.values():
            if environment in machine.disk.environments.values():
                self._bookies[machine.name] = None

    def collects(self, store: EntryStore, garbage: GarbageCollector) -> None:
        """A collector was made for a store."""
        self._garbage[id(store)] = garbage

    def disturbs(self, victims: Sequence[Machine]) -> None:
        """A storm over the nodes of these machines begins."""
        self._disturbed.update(dict.fromkeys(machine.name for machine in victims))

    def loaded(self, metadata: EmbeddedMetadata) -> None:
        """A metadata store was loaded."""
        self._metadata = metadata


@contextmanager
def roll_call(simulation: Simulation) -> Iterator[Roll]:
    """Follows the nodes that are started during the block."""
    roll = Roll(simulation)

    def serve(before: Callable[..., Awaitable[None]]) -> Any:
        async def followed(world: SimulatedWorld, *others: Any) -> None:
            *settings, ready, stop = others

            def serves(serving: ServingBroker) -> None:
                roll.serves(world._process, serving)
                ready(serving)

            await before(world, *settings, serves, stop)

        return followed

    def open_store(before: Callable[..., None]) -> Any:
        def followed(store: EntryStore, environment: Any, *others: Any, **options: Any) -> None:
            before(store, environment, *others, **options)
            roll.opened(environment, store)

        return followed

    def collect(before: Callable[..., None]) -> Any:
        def followed(garbage: GarbageCollector, store: EntryStore, *others: Any, **options: Any) -> None:
            before(garbage, store, *others, **options)
            roll.collects(store, garbage)

        return followed

    def disturb(before: Callable[..., None]) -> Any:
        def followed(storm: Storm, simulation: Simulation, victims: Sequence[Machine], **options: Any) -> None:
            before(storm, simulation, victims, **options)
            roll.disturbs(victims)

        return followed

    def load(before: Callable[..., None]) -> Any:
        def followed(metadata: EmbeddedMetadata, *args: Any) -> None:
            before(metadata, *args)
            roll.loaded(metadata)

        return followed

    with ExitStack() as stack:
        patch = Patches(stack)
        for module in (standalone, clustered):
            patch(module, "serve", serve)
        patch(EntryStore, "__init__", open_store)
        patch(GarbageCollector, "__init__", collect)
        patch(EmbeddedMetadata, "__init__", load)
        patch(Storm, "__init__", disturb)
        yield roll
