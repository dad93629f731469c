"""A log on simulated bookies that is written and planned by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import trio
from planned_topic import planned_bookies_of

from gnomon.bookie.bookie import Bookies
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.ledgers.catalog import Ledger, Quorum
from gnomon.bookie.node import FOLDER
from gnomon.bookie.storage.entry_store import ENTRIES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.log.entry import NO_ABORT, EntryKind, Offset, pack_header
from gnomon.log.plans.planned_bookies import planned_bookies
from gnomon.log.plans.planned_read import read_planned
from gnomon.log.plans.read_plan import PlannedSegment
from gnomon.metadata.cluster_id import cluster_id
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import Record, build_batch

OFFSETS = 3
"""Offsets of each batch."""


def entry_of(base: int, payload_bytes: int = 10) -> list[bytes]:
    """The entry of a batch that begins at an offset."""
    end = base + OFFSETS
    records = [Record(at, 0, None, b"x" * payload_bytes) for at in range(OFFSETS)]
    header = pack_header(EntryKind.BATCH, 0, base, end, end, 0, 0, NO_ABORT)
    return [header, build_batch(records, base_timestamp=0, base_offset=base)]


def snapshot_at(offset: int) -> list[bytes]:
    """An entry without offsets."""
    return [pack_header(EntryKind.PRODUCERS, 0, offset, offset, offset, 0, 0, NO_ABORT), b"states"]


class Read(NamedTuple):
    """The result of a read: the base offsets of the batches, and the lost ranges."""

    batches: list[int]
    lost: list[tuple[int, int]]


class PlannedLog:
    """Ledgers of batches with OFFSETS offsets each, the plan of all of them, and the bookies by their addresses."""

    def __init__(self, client: LedgerClient, cluster: LedgerCluster) -> None:
        self.client, self.cluster = client, cluster
        self.bookies: Bookies = client.bookies
        self.segments: list[PlannedSegment] = []
        self.ledgers: list[Ledger] = []
        self.end = 0

    async def write(self, batches: int, quorum: Quorum, *, payload_bytes: int = 10, snapshots: bool = False) -> None:
        """Adds a ledger with this many batches; with `snapshots`, an entry without offsets before each."""
        ledger = await self.client.create(f"log/{self.end:020}", quorum)
        base = self.end
        for _ in range(batches):
            if snapshots:
                await ledger.add(snapshot_at(self.end))
            await ledger.add(entry_of(self.end, payload_bytes))
            self.end += OFFSETS
        self.ledgers.append(ledger)
        run = EntryId(0), ledger.last_add_confirmed
        self.segments.append(
            PlannedSegment(Offset(base), ledger.id, ledger.record, *run, Offset(self.end), ledger.length_bytes)
        )

    async def read(self, start: int, stop: int, segments: Sequence[PlannedSegment] | None = None) -> Read:
        """Reads a range of the plan."""
        lost: list[tuple[int, int]] = []
        found = await self._batches(start, stop, self.segments if segments is None else segments, lost)
        return Read([parse_batch(batch).base_offset for batch in found], lost)

    async def contents(self, start: int, stop: int) -> list[bytes]:
        """Reads a range of the plan that has lost nothing; returns its batches."""
        lost: list[tuple[int, int]] = []
        found = await self._batches(start, stop, self.segments, lost)
        assert lost == []
        return [bytes(batch) for batch in found]

    async def _batches(
        self, start: int, stop: int, planned: Sequence[PlannedSegment], lost: list[tuple[int, int]]
    ) -> list[memoryview]:
        reading = read_planned(
            self.bookies, "orders-0", planned, Offset(start), Offset(stop), lambda *each: lost.append(each)
        )
        async with aclosing(reading) as runs:
            return [batch async for batches in runs for batch in batches]

    def damage(self, segment: int, entry: int, names: Iterable[BookieId]) -> None:
        """Flips a bit of these copies."""
        for name in names:
            key = ENTRY_KEY.pack(self.ledgers[segment].id, entry)
            self.cluster.simulation.machine(name).disk.flip_bit(self.cluster.data(name) / FOLDER, ENTRIES, key)


def expected(start: int, stop: int) -> list[int]:
    """The base offsets of the batches that cover a range."""
    return list(range(start - start % OFFSETS, stop, OFFSETS)) if start < stop else []


def with_log(work: Callable[[PlannedLog], Awaitable[None]], *, seed: int = 1) -> None:
    """Runs `work` on a machine that has no metadata but for writing; its reads go to bookies by their addresses."""

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, 3)
        await cluster.start()

        async def on_client(client: LedgerClient) -> None:
            log = PlannedLog(client, cluster)
            listed = await planned_bookies_of(client.metadata)
            name = await cluster_id(client.metadata, client.world.random("cluster"))
            async with planned_bookies(client.world, lambda _: None) as known:
                log.bookies = known.of(name, listed)
                await work(log)

        with trio.fail_after(600):
            await cluster.run_client("client", on_client)

    simulate(seed, scenario)
