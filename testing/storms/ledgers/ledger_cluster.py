"""A metadata service and bookies on simulated machines, and clients that use their ledgers.

    cluster = LedgerCluster(simulation, bookies=4)
    await cluster.start()
    async def work(client):
        ledger = await client.create("ledger", Quorum(3, 3, 2))
        ...
    await cluster.run_client("writer", work)

Bookies are machines `bookie-1` …, the metadata service is `metadata`. A test may kill them, cut their links and start
them again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import trio

from gnomon.bookie.errors import ForeignDisk
from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers.catalog import Ledger, OpenMode, Quorum, open_ledger
from gnomon.bookie.node import BookieNodeSettings, ServingBookie, run_bookie
from gnomon.bookie.registration import COOKIES, DRAINING
from gnomon.bookie.registry import RegisteredBookies
from gnomon.bookie.repair.auditor import Auditor, AuditSettings
from gnomon.bookie.storage.older_store import copy_in_repair
from gnomon.metadata.client import Compare, KeyField, Metadata, MetadataUnavailable, Put
from gnomon.metadata.node import MetadataNodeSettings, run_metadata
from gnomon.metadata.remote import RemoteMetadata
from gnomon.runtime.world import DiskFull
from gnomon.testing.simulation.machine import Machine, Node, result_of
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation

T = TypeVar("T")

METADATA, METADATA_PORT, BOOKIE_PORT = "metadata", 4001, 4002
MAP_BYTES = 1 << 26
DATA = Path("/data")
START_AGAIN_SECONDS = 0.5
OPERATOR = "operator-"
"""The names of machines whose operator decommissions a bookie begin so."""


@dataclass(slots=True)
class LedgerClient:
    """One process's access to the cluster."""

    world: SimulatedWorld
    metadata: RemoteMetadata
    bookies: RegisteredBookies

    async def create(self, name: str, quorum: Quorum, **options: Any) -> Ledger:
        """Creates a ledger."""
        return await self._open(name, OpenMode.O_CREATE, quorum=quorum, **options)

    async def claim(self, name: str, **options: Any) -> Ledger:
        """Claims a ledger for appending."""
        return await self._open(name, OpenMode.O_APPEND, **options)

    async def follow(self, name: str, **options: Any) -> Ledger:
        """Opens a ledger for reading."""
        return await self._open(name, OpenMode.O_RDONLY, **options)

    async def _open(self, name: str, mode: OpenMode, **options: Any) -> Ledger:
        return await open_ledger(self.metadata, self.bookies, name, mode=mode, **options)


async def followed_bookies(world: SimulatedWorld, metadata: Metadata, nursery: trio.Nursery) -> RegisteredBookies:
    """The registered bookies, once the metadata service answers; a task in the nursery follows changes."""
    bookies = RegisteredBookies(world, metadata, world.logger, nursery)
    while True:
        try:
            await bookies.load()
            break
        except MetadataUnavailable:
            await world.clock.sleep(START_AGAIN_SECONDS)
    nursery.start_soon(bookies.run)
    return bookies


class LedgerCluster:
    """The machines; `domains` gives each bookie its rack or zone, `audit` makes each a candidate for auditor."""

    def __init__(
        self,
        simulation: Simulation,
        bookies: int = 4,
        *,
        lease_seconds: float = 3.0,
        domains: tuple[str, ...] = (),
        garbage_interval_seconds: float = 10.0,
        audit: AuditSettings | None = None,
    ) -> None:
        self.simulation = simulation
        self.metadata = simulation.machine(METADATA)
        self.names = [BookieId(f"bookie-{number}") for number in range(1, bookies + 1)]
        self.bookies = {name: simulation.machine(name) for name in self.names}
        self._domains = dict(zip(self.names, domains, strict=False))
        self._lease_seconds = lease_seconds
        self._garbage_interval_seconds = garbage_interval_seconds
        self._audit = audit
        self._auditing: list[trio.CancelScope] = []
        self._disks = dict.fromkeys(self.names, 1)
        self.decommissioned: list[BookieId] = []

    async def start(self) -> None:
        """Starts all machines and waits until every bookie has registered."""
        for name, node in self.nodes().items():
            self.simulation.machine(name).start(node)
        await self.run_client("starter", self._all_registered)

    def nodes(self) -> dict[str, Node]:
        """The node of each machine by name."""
        return {METADATA: self._metadata_node, **{name: self._bookie_node(name) for name in self.names}}

    async def _all_registered(self, client: LedgerClient) -> None:
        while len(client.bookies.available()) < len(self.bookies):
            await client.bookies.changed()

    @staticmethod
    async def _metadata_node(world: SimulatedWorld) -> None:
        settings = MetadataNodeSettings(DATA, host="", port=METADATA_PORT, map_bytes=MAP_BYTES)
        await run_metadata(world, settings, world.logger, ready=lambda _: None, stop=world.stop_requested)

    def _bookie_node(self, name: BookieId) -> Node:
        async def node(world: SimulatedWorld) -> None:
            metadata = RemoteMetadata(world, [(METADATA, METADATA_PORT)])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(metadata.run)
                while not world.stop_requested.is_set():
                    try:
                        await self._run_bookie(world, metadata, name)
                    except* (MetadataUnavailable, DiskFull):
                        await world.clock.sleep(START_AGAIN_SECONDS)  # as a supervisor of the process does
                    except* ForeignDisk:
                        if name not in self.decommissioned:
                            raise
                        self._disks[name] += 1
                nursery.cancel_scope.cancel()

        return node

    async def _run_bookie(self, world: SimulatedWorld, metadata: RemoteMetadata, name: BookieId) -> None:
        """Runs a bookie to its end; a decommissioned bookie comes back with an empty disk."""
        settings = BookieNodeSettings(
            name,
            self.data(name),
            host="",
            port=BOOKIE_PORT,
            advertised_host=name,
            domain=self._domains.get(name, ""),
            map_bytes=MAP_BYTES,
            lease_seconds=self._lease_seconds,
            garbage_interval_seconds=self._garbage_interval_seconds,
        )
        stop = trio.Event()

        async def stop_when_asked() -> None:
            await world.stop_requested.wait()
            stop.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_when_asked)

            def ready(_: ServingBookie) -> None:
                if self._audit is not None:
                    nursery.start_soon(self._run_auditor, world, metadata, name, nursery, self._audit)

            await run_bookie(world, metadata, settings, world.logger, ready=ready, stop=stop)
            nursery.cancel_scope.cancel()
        if not world.stop_requested.is_set():
            self._disks[name] += 1

    async def _run_auditor(
        self,
        world: SimulatedWorld,
        metadata: RemoteMetadata,
        name: BookieId,
        nursery: trio.Nursery,
        settings: AuditSettings,
    ) -> None:
        with trio.CancelScope() as scope:
            self._auditing.append(scope)
            bookies = await followed_bookies(world, metadata, nursery)
            await Auditor(metadata, bookies, settings, name, world.logger).run()

    def stop_auditing(self) -> None:
        """Ends the auditors, so that they change no more records."""
        self._audit = None
        for scope in self._auditing:
            scope.cancel()

    async def in_repair(self, client: LedgerClient) -> list[BookieId]:
        """The bookies whose stores are older copies that no auditor has repaired yet."""
        while True:
            with suppress(MetadataUnavailable):
                return [name for name in self.names if await copy_in_repair(client.metadata, name) is not None]
            await client.world.clock.sleep(START_AGAIN_SECONDS)

    async def repaired(self, client: LedgerClient) -> None:
        """Waits until auditors, if there are any, have repaired every bookie whose store is an older copy."""
        while self._audit is not None and await self.in_repair(client):
            await client.world.clock.sleep(START_AGAIN_SECONDS)

    def data(self, name: BookieId) -> Path:
        """The directory of a bookie's entries on its machine; each disk has a directory of its own."""
        return DATA if self._disks[name] == 1 else Path(f"{DATA}-{self._disks[name]}")

    async def decommission(self, name: BookieId) -> None:
        """Decommissions a bookie as an operator does; returns once the metadata has the request."""
        self.decommissioned.append(name)

        async def drain(client: LedgerClient) -> None:
            cookie = f"{COOKIES}{name}"
            while True:
                with suppress(MetadataUnavailable):
                    known = await client.metadata.get(cookie)
                    if known is not None:
                        same = Compare(cookie, KeyField.MOD_REVISION, known.mod_revision)
                        await client.metadata.txn((same,), (Put(f"{DRAINING}{name}", b""),))
                    return
                await client.world.clock.sleep(START_AGAIN_SECONDS)

        await self.run_client(f"{OPERATOR}{len(self.decommissioned)}", drain)

    @staticmethod
    def client_node(work: Callable[[LedgerClient], Awaitable[object]]) -> Node:
        """A node that runs `work` once the metadata service answers."""

        async def node(world: SimulatedWorld) -> None:
            async with trio.open_nursery() as nursery:
                metadata = RemoteMetadata(world, [(METADATA, METADATA_PORT)])
                nursery.start_soon(metadata.run)
                bookies = await followed_bookies(world, metadata, nursery)
                await work(LedgerClient(world, metadata, bookies))
                nursery.cancel_scope.cancel()

        return node

    async def run_client(self, name: str, work: Callable[[LedgerClient], Awaitable[T]]) -> T:
        """Runs `work` on a machine of its own until it is done; returns its result."""
        return await result_of(self.start_client, name, work)

    def start_client(self, name: str, work: Callable[[LedgerClient], Awaitable[object]]) -> Machine:
        """Starts a machine that runs `work`; returns the machine."""
        machine = self.simulation.machine(name)
        machine.start(self.client_node(work))
        return machine
