"""The scenario of the sweeps over replicated ledgers: writers and readers while a storm rages over all machines.

    result = sweep(LedgerScenario(), range(200))
    result.coverage.assert_all_counted(COUNTERS)

1. Each seed draws its quorum, its bookies, what its clients do, and its mix of faults.
2. Safety: the ledger checker finds nothing, in what clients saw, in the history of the records, in the bookies' stores.
3. Liveness: once all is calm, within `liveness_seconds`, every ledger is claimed, takes appends and is read whole; a
   new one can be made; whoever follows a ledger gets to its end.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import trio

from gnomon.bookie.entry import decode_entry, session_of
from gnomon.bookie.entry_store import ENTRIES
from gnomon.bookie.errors import DigestMismatch, LedgerSealed, NoSuchLedger
from gnomon.bookie.ids import EntryId, LedgerId
from gnomon.bookie.ledger import Ledger, Quorum
from gnomon.bookie.node import FOLDER
from gnomon.bookie.record import LEDGERS, decode_record
from gnomon.bookie.removal import ENTRY_KEY
from gnomon.metadata.client import KeyValue, MetadataError, Put, Revision
from gnomon.testing.checkers import check_watch
from gnomon.testing.faults import Fault, FaultMix, Storm
from gnomon.testing.ledger_checker import Copy, StormHistory, check_copies
from gnomon.testing.ledger_clients import REFUSALS, Habits, StormReader, StormWriter
from gnomon.testing.ledger_cluster import DATA, LedgerClient, LedgerCluster
from gnomon.testing.ledger_probes import PROBES, ledger_probes
from gnomon.testing.ledger_storm import LedgerStorm
from gnomon.testing.machine import Machine
from gnomon.testing.simulation import Simulation

QUORUMS = (
    Quorum(3, 3, 2),
    Quorum(3, 3, 2),
    Quorum(3, 2, 2),
    Quorum(4, 3, 2),
    Quorum(3, 3, 3),
    Quorum(2, 2, 1),
    Quorum(5, 3, 2),
    Quorum(2, 1, 1),
    Quorum(1, 1, 1),
)
COUNTERS = (
    *(fault.counter for fault in Fault),
    *LedgerStorm.COUNTERS,
    *PROBES,
    *(
        f"ledger/{event}"
        for event in (
            "created",
            "claimed",
            "claim lost",
            "sealed",
            "shrunk",
            "shrunk at once",
            "deleted",
            "refused: LedgerFenced",
            "refused: LedgerFailed",
            "refused: LedgerSealed",
            "reader followed a change of writer",
            "reader met a shrink",
        )
    ),
)
"""What a sweep has to reach."""
Seen: TypeAlias = tuple[Revision, str, bool]
"""Revision and key of an event, and whether the key was deleted."""
RETRY_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LedgerScenario:
    """A scenario for `simulate` and `sweep`; returns the number of entries that were read in the end.

    Attributes:
        quorum, bookies: instead of those drawn from each seed.
        habits: of the writers, likewise.
        mix: likewise.
    """

    names: int = 3
    writers: int = 3
    readers: int = 2
    storm_seconds: float = 15.0
    liveness_seconds: float = 60.0
    quorum: Quorum | None = None
    bookies: int | None = None
    habits: Habits | None = None
    mix: FaultMix | None = None

    async def __call__(self, simulation: Simulation) -> int:
        """Runs it once.

        Raises:
            AssertionError: what the checker found, or a liveness phase that took too long.
        """
        with ledger_probes(simulation.coverage):
            return await _Run(self, simulation).run()


@dataclass(slots=True)
class _Run:
    scenario: LedgerScenario
    simulation: Simulation
    history: StormHistory = field(default_factory=StormHistory)
    readers: dict[str, StormReader] = field(default_factory=dict)
    records: dict[str, list[KeyValue | None]] = field(default_factory=dict)
    events: list[Seen] = field(default_factory=list)
    """All changes of records, and what a client was told of them that watched throughout."""
    watched: list[Seen] = field(default_factory=list)

    async def run(self) -> int:
        simulation, scenario = self.simulation, self.scenario
        stream = simulation.random("scenario")
        quorum = scenario.quorum or stream.choice(QUORUMS)
        names = [f"ledger-{number}" for number in range(stream.randint(1, scenario.names))]
        # With none to spare, bookies are waited for and come back lacking entries; else they are replaced.
        spare = stream.random() < 0.5
        bookies = scenario.bookies or (
            max(quorum.ensemble_size, 4) + stream.randint(0, 1) if spare else quorum.ensemble_size
        )
        simulation.trace.add(f"{bookies} bookies, {tuple(quorum)}, {len(names)} ledgers")
        cluster = LedgerCluster(
            simulation, bookies, lease_seconds=stream.choice([1.0, 3.0, 6.0]), garbage_interval_seconds=2.0
        )
        await cluster.start()
        habits = scenario.habits or Habits.draw(stream)
        clients = self._start_clients(cluster, names, quorum, habits, stream)
        simulation.machine("watcher").start(cluster.client_node(self._watch))
        storm = Storm(simulation, [cluster.metadata, *cluster.bookies.values()], mix=scenario.mix)
        beside = LedgerStorm(cluster, clients, flips=quorum.ack_quorum > 1)
        simulation.start_soon(beside.rage, scenario.storm_seconds)
        await storm.rage(scenario.storm_seconds)
        beside.calm()
        for client in clients:
            if client.name.startswith("writer"):
                client.kill()
        if stream.random() < 0.3:
            for machine in (cluster.metadata, *cluster.bookies.values()):
                machine.power_off()
        storm.calm()
        for client in clients:
            if client.name.startswith("reader") and not client.running:
                client.start()
        for reader in self.readers.values():
            reader.settled = True
        with trio.move_on_after(scenario.liveness_seconds) as liveness:
            await cluster.run_client("finisher", lambda client: self._finish(client, names, quorum))
            while not all(map(self._caught_up, self.readers.values())):
                await simulation.sleep(RETRY_SECONDS)
        wrong = self.history.check(self.records)
        if self.events:
            wrong += check_watch(self.events, self.watched, caught_up=False)
        if liveness.cancelled_caught:
            wrong.append(f"{scenario.liveness_seconds} virtual seconds after the storm: {self._missing(names)}")
        else:
            wrong += self._check_stores(cluster, beside)
        assert not wrong, "; ".join(wrong)
        return sum(len(life.final or ()) for life in self.history.lives.values())

    # --- clients ---

    def _start_clients(
        self, cluster: LedgerCluster, names: list[str], quorum: Quorum, habits: Habits, stream: random.Random
    ) -> list[Machine]:
        coverage = self.simulation.coverage
        starts = 0

        async def write(client: LedgerClient) -> None:
            nonlocal starts
            starts += 1
            await StormWriter(client, f"writer#{starts}", self.history, coverage, names, quorum, habits).run()

        def reader(machine: str) -> Callable[[LedgerClient], Awaitable[None]]:
            async def read(client: LedgerClient) -> None:
                nonlocal starts
                starts += 1
                reader = StormReader(client, f"reader#{starts}", self.history, coverage, names)
                reader.settled = machine in self.readers and self.readers[machine].settled
                self.readers[machine] = reader
                await reader.run()

            return read

        clients = []
        for number in range(stream.randint(1, self.scenario.writers)):
            clients.append(self.simulation.machine(f"writer-{number}"))
            clients[-1].start(cluster.client_node(write))
        for number in range(stream.randint(1, self.scenario.readers)):
            clients.append(self.simulation.machine(f"reader-{number}"))
            clients[-1].start(cluster.client_node(reader(clients[-1].name)))
        return clients

    # --- liveness ---

    async def _finish(self, client: LedgerClient, names: list[str], quorum: Quorum) -> None:
        finisher = StormWriter(
            client, "finisher", self.history, self.simulation.coverage, names, quorum, Habits.draw(random.Random(0))
        )
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(self._until_done, finisher, name, self._go_on)
            nursery.start_soon(self._until_done, finisher, "made after the storm", self._make)
        await self._read_records(client)

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
                self.simulation.trace.add(f"finisher: {name}: {type(error).__name__}: {error}")
                await finisher.clock.sleep(RETRY_SECONDS)

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

    async def _read_records(self, client: LedgerClient) -> None:
        """All versions of all records, from the history of the metadata."""
        end = "end of the storm"
        while True:
            try:
                await client.metadata.txn((), (Put(end, b""),))
                break
            except MetadataError:
                await client.world.clock.sleep(RETRY_SECONDS)
        async with client.metadata.watch("", Revision(1)) as batches:
            async for batch in batches:
                for event in batch.events:
                    if event.key == end:
                        return
                    if event.key.startswith(LEDGERS):
                        self.records.setdefault(event.key.removeprefix(LEDGERS), []).append(event.current)
                        self.events.append((batch.revision, event.key, event.current is None))

    async def _watch(self, client: LedgerClient) -> None:
        async with client.metadata.watch(LEDGERS, Revision(1)) as batches:
            async for batch in batches:
                self.watched += [(batch.revision, event.key, event.current is None) for event in batch.events]

    def _caught_up(self, reader: StormReader) -> bool:
        """Whether it has read all of its ledger, or has none to follow."""
        ledger = reader.following
        if ledger is None:
            return True
        final = self.history.life(ledger.id, ledger.name).final
        if final is None:
            return self.history.life(ledger.id, ledger.name).deleted is not None
        return reader.next_entry > max(final, default=EntryId(-1))

    def _missing(self, names: list[str]) -> str:
        done = {life.name for life in self.history.lives.values() if life.final is not None}
        open_names = [name for name in names if name not in done]
        late = [
            f"{name} at entry {reader.next_entry} of {reader.following and reader.following.id}"
            for name, reader in self.readers.items()
            if not self._caught_up(reader)
        ]
        return f"not read whole: {', '.join(open_names) or 'none'}; readers behind: {', '.join(late) or 'none'}"

    # --- stores ---

    def _check_stores(self, cluster: LedgerCluster, storm: LedgerStorm) -> list[str]:
        copies = {name: _stored(machine) for name, machine in cluster.bookies.items()}
        wrong = []
        for ledger, life in self.history.lives.items():
            if life.final is None:
                continue
            record = decode_record([value for value in self.records[life.name] if value is not None][-1].value)
            held = {name: all_.get(ledger, {}) for name, all_ in copies.items()}
            damaged = [(name, entry) for name, at, entry in storm.flipped if at == ledger]
            wrong += [f"{life.name} ({ledger}): {text}" for text in check_copies(record, life.final, held, damaged)]
        return wrong


def _stored(machine: Machine) -> Mapping[LedgerId, Mapping[EntryId, Copy]]:
    """Everything that a bookie holds."""
    environment = machine.disk.environments[DATA / FOLDER]
    found: dict[LedgerId, dict[EntryId, Copy]] = {}
    with environment.read() as transaction:
        cursor: Any = transaction.cursor(db=environment.databases[ENTRIES])
        for key, value in cursor:
            ledger, entry = (LedgerId(ENTRY_KEY.unpack(key)[0]), EntryId(ENTRY_KEY.unpack(key)[1]))
            found.setdefault(ledger, {})[entry] = _copy(ledger, entry, value)
    return found


def _copy(ledger: LedgerId, entry: EntryId, value: memoryview) -> Copy:
    try:
        stored = decode_entry(ledger, entry, value)
    except DigestMismatch:
        return Copy(session_of(value), None)
    return Copy(stored.session, bytes(stored.payload))
