"""The end of a storm over ledgers: claims each ledger, appends to it, reads it whole, and judges the result.

verdict = LedgerVerdict(simulation, history)
await cluster.run_client("finisher", lambda client: verdict.finish(client, names, quorum))
assert not history.check(verdict.records) + verdict.check_stores(cluster)
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import trio

from gnomon.bookie.entry import decode_entry, session_of
from gnomon.bookie.errors import DigestMismatch, LedgerSealed, NoSuchLedger
from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.ledgers.catalog import Ledger, Quorum
from gnomon.bookie.missing_report import MISSING
from gnomon.bookie.node import FOLDER
from gnomon.bookie.record import LEDGERS, decode_record
from gnomon.bookie.storage.entry_store import ENTRIES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.metadata.client import KeyValue, MetadataError, Put, Revision
from gnomon.testing.simulation.disk.simulated_disk import SimulatedEnvironment
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.ledgers.ledger_checker import StoredCopy, StormHistory, check_copies
from gnomon.testing.storms.ledgers.ledger_clients import REFUSALS, Habits, StormWriter
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

Seen: TypeAlias = tuple[Revision, str, bool]
"""Revision and key of an event, and whether the key was deleted."""
RETRY_SECONDS = 0.2
MADE = "made after the storm"
"""The name of the ledger that the finisher creates."""
END = "end of the storm"
"""The key that `read_records` writes."""


class LedgerVerdict:
    """Compares the final state of the ledgers with the answers that clients got before."""

    def __init__(self, simulation: Simulation, history: StormHistory) -> None:
        self.history = history
        self.records: dict[str, list[KeyValue | None]] = {}
        """By name, every version of the record; None for a deletion."""
        self.events: list[Seen] = []
        """All changes of records, in order."""
        self._simulation = simulation

    async def finish(self, client: LedgerClient, names: Sequence[str], quorum: Quorum) -> None:
        """Claims, appends to and reads every ledger; retries without end, so every bookie must run."""
        finisher = self._finisher(client, names, quorum)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(self._until_done, finisher, name, self._go_on)
            nursery.start_soon(self._until_done, finisher, MADE, self._make)
        await self.read_records(client)

    async def settle(self, client: LedgerClient, names: Sequence[str], quorum: Quorum) -> None:
        """Claims every ledger, which reports copies that the finisher has left missing; waits until none is reported.

        Needs auditors.
        """
        for name in names:
            await self._until_done(self._finisher(client, names, quorum), name, self._claim)
        while True:
            with suppress(MetadataError):
                if not (await client.metadata.range(MISSING)).items:
                    return
            await client.world.clock.sleep(RETRY_SECONDS)

    def check_stores(
        self,
        cluster: LedgerCluster,
        flipped: Collection[tuple[BookieId, LedgerId, EntryId]] = (),
        in_repair: Collection[BookieId] = (),
        *,
        settled: bool = False,
    ) -> list[str]:
        """The entries of the final read whose copies on the bookies are missing or wrong, as texts.

        Args:
            flipped: copies in which a bit was flipped.
            in_repair: bookies that may have lost any of their entries.
            settled: whether each entry has to be on its write quorum, as after `settle`, not only on its ack quorum.
        """
        copies = {
            name: stored_copies(machine.disk.environments[cluster.data(name) / FOLDER])
            for name, machine in cluster.bookies.items()
        }
        wrong = []
        for ledger, life in self.history.lives.items():
            if life.final is None:
                continue
            record = decode_record([value for value in self.records[life.name] if value is not None][-1].value)
            held = {name: all_.get(ledger, {}) for name, all_ in copies.items()}
            damaged = [(name, entry) for name, at, entry in flipped if at == ledger]
            damaged += [(name, entry) for name in in_repair for entry in life.final if entry not in held[name]]
            needed = record.quorum.write_quorum if settled else record.quorum.ack_quorum
            found = check_copies(record, life.final, held, damaged, needed=needed)
            wrong += [f"{life.name} ({ledger}): {text}" for text in found]
        return wrong

    async def _until_done(
        self, finisher: StormWriter, name: str, work: Callable[[StormWriter, str], Awaitable[None]]
    ) -> None:
        while True:
            try:
                await work(finisher, name)
                return
            except NoSuchLedger:
                return
            except REFUSALS as error:
                self._simulation.trace.add(f"finisher: {name}: {type(error).__name__}: {error}")
                await finisher.clock.sleep(RETRY_SECONDS)

    def _finisher(self, client: LedgerClient, names: Sequence[str], quorum: Quorum) -> StormWriter:
        habits = Habits.draw(random.Random(0))
        return StormWriter(client, "finisher", self.history, self._simulation.coverage, names, quorum, habits)

    @staticmethod
    async def _claim(finisher: StormWriter, name: str) -> None:
        with suppress(LedgerSealed):
            await finisher.open(lambda: finisher.client.claim(name), writes=True)

    async def _make(self, finisher: StormWriter, name: str) -> None:
        try:
            ledger, handle = await finisher.open(lambda: finisher.client.claim(name), writes=True)
        except NoSuchLedger:
            quorum = finisher.quorum
            ledger, handle = await finisher.open(lambda: finisher.client.create(name, quorum), writes=True)
        await self._append_and_read(finisher, ledger, handle)

    async def _go_on(self, finisher: StormWriter, name: str) -> None:
        try:
            ledger, handle = await finisher.open(lambda: finisher.client.claim(name), writes=True)
        except LedgerSealed:
            ledger, _ = await finisher.open(lambda: finisher.client.follow(name))
            await self._read_all(finisher, ledger)
            return
        await self._append_and_read(finisher, ledger, handle)

    async def _append_and_read(self, finisher: StormWriter, ledger: Ledger, handle: str) -> None:
        for _ in range(3):
            finisher.append(ledger, handle)
        await ledger.drained()
        await self._read_all(finisher, ledger)
        follower, _ = await finisher.open(lambda: finisher.client.follow(ledger.name))
        await follower.wait_for_lac(ledger.last_add_confirmed)
        await finisher.read(follower, follower.start_entry, follower.last_add_confirmed)

    async def _read_all(self, finisher: StormWriter, ledger: Ledger) -> None:
        first, last = ledger.start_entry, ledger.last_add_confirmed
        payloads = await finisher.read(ledger, first, last) if last >= first else []
        life = finisher.note(ledger)
        life.final = {EntryId(entry): payload for entry, payload in enumerate(payloads, first)}

    async def read_records(self, client: LedgerClient) -> None:
        """Reads all versions of all records from the metadata's history; no record may change meanwhile."""
        while True:
            try:
                end = (await client.metadata.txn((), (Put(END, b""),))).revision
                break
            except MetadataError:
                await client.world.clock.sleep(RETRY_SECONDS)
        self.records, self.events = {}, []
        async with client.metadata.watch("", Revision(1)) as batches:
            async for batch in batches:
                for event in batch.events:
                    if event.key.startswith(LEDGERS):
                        self.records.setdefault(event.key.removeprefix(LEDGERS), []).append(event.current)
                        self.events.append((batch.revision, event.key, event.current is None))
                if batch.revision >= end:
                    return


def stored_copies(environment: SimulatedEnvironment) -> Mapping[LedgerId, Mapping[EntryId, StoredCopy]]:
    """All copies that a bookie stores, by the environment of its store."""
    found: dict[LedgerId, dict[EntryId, StoredCopy]] = {}
    with environment.read() as transaction:
        cursor: Any = transaction.cursor(db=environment.databases[ENTRIES])
        for key, value in cursor:
            ledger, entry = (LedgerId(ENTRY_KEY.unpack(key)[0]), EntryId(ENTRY_KEY.unpack(key)[1]))
            found.setdefault(ledger, {})[entry] = _copy(ledger, entry, value)
    return found


def _copy(ledger: LedgerId, entry: EntryId, value: memoryview) -> StoredCopy:
    try:
        stored = decode_entry(ledger, entry, value)
    except DigestMismatch:
        return StoredCopy(session_of(value), None)
    return StoredCopy(stored.session, bytes(stored.payload), stored.last_add_confirmed)
