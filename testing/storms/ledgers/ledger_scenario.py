"""The scenario of the sweeps over replicated ledgers: writers and readers while a storm disturbs all machines.

    result = sweep(LedgerScenario(), range(200))
    result.coverage.assert_all_counted(COUNTERS)

1. Each seed draws its quorum, its number of bookies, the habits of its clients and its mix of faults.
2. Safety: the ledger checker finds no anomaly in the clients' observations, in the history of the records or in the
   bookies' stores.
3. Liveness: within `liveness_seconds` after the storm every ledger is claimed, accepts appends and is read whole, a new
   ledger is created, and every follower of a ledger reaches its end. Where there are auditors, every
   bookie with an older copy of its disk is repaired, and every entry is brought to its write quorum.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import trio

from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.record import LEDGERS
from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.bookie.storage import removal
from gnomon.metadata.client import Revision
from gnomon.testing.simulation.checkers import check_watch
from gnomon.testing.simulation.faults import Fault, FaultMix, Storm
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.ledgers.isolation import AUDIT, LEASE_SECONDS, Isolation
from gnomon.testing.storms.ledgers.ledger_checker import StormHistory
from gnomon.testing.storms.ledgers.ledger_clients import Habits, StormReader, StormWriter
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.storms.ledgers.ledger_probes import PROBES, ledger_probes
from gnomon.testing.storms.ledgers.ledger_storm import LedgerStorm
from gnomon.testing.storms.ledgers.ledger_verdict import MADE, LedgerVerdict, Seen
from gnomon.testing.storms.ledgers.older_copies import OlderCopies

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
    Isolation.COUNTER,
    OlderCopies.COUNTER,
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
            "given up: seal",
            "given up: shrink",
            "given up: close",
            "writer told of a deletion",
        )
    ),
)
"""The counters that a sweep has to reach."""
CHUNK_ENTRIES = 3
"""Replaces the product's value, so that the few hundred entries of a seed take several chunks."""
FAULTS_RARER = 20.0
"""Divides the rates of other faults in seeds with isolation: the reaction to a fault needs time before the next."""
RETRY_SECONDS = 0.2
SETTLED_SECONDS = 1.0
"""After this time an auditor's request to the metadata has taken effect, or never does."""


@dataclass(frozen=True, slots=True)
class LedgerScenario:
    """A scenario for `simulate` and `sweep`; returns the number of entries of the final read.

    Attributes:
        quorum, bookies: replace the values that each seed draws.
        habits: the writers' habits; replace those that each seed draws.
        mix: the mix of faults; replaces the one that each seed draws.
        audit: the settings of auditors in the half of the seeds that draws none.
        isolated: the share of seeds in which bookies are isolated until they are replaced (`Isolation`). Those seeds
            draw quorum, bookies, habits and mix in a way of their own, so it has to be 0 if one of them is given.
        older: the share of seeds in which disks are replaced by older copies of themselves (`OlderCopies`).
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
    audit: AuditSettings | None = None
    isolated: float = 0.2
    older: float = 0.5

    async def __call__(self, simulation: Simulation) -> int:
        """Runs the scenario once.

        Raises:
            AssertionError: the checker found an anomaly, or the liveness phase took too long.
        """
        with ledger_probes(simulation.coverage), patch.object(removal, "CHUNK_ENTRIES", CHUNK_ENTRIES):
            stream = simulation.random("isolated")
            if stream.random() >= self.isolated:
                return await _LedgerRun(self, simulation).run()
            return await _LedgerRun(self._with_isolation(stream), simulation, isolates=True).run()

    def _with_isolation(self, stream: random.Random) -> LedgerScenario:
        """This scenario with conditions in which a bookie is replaced, forgotten and chosen again.

        There is a spare bookie and an ack quorum without the isolated one; ledgers are never deleted and are claimed a
        few times a second; other faults are rare.
        """
        quorum = stream.choice([quorum for quorum in QUORUMS if quorum.ack_quorum > 1])
        habits = Habits(
            burst_max=stream.choice([2, 10]),
            payload_bytes=10,
            pause_seconds=0.2,
            claim=stream.choice([0.1, 0.3]),
            linger=1.0,
            shrink=0.0,
            seal=0.0,
            delete=0.0,
            read=0.1,
        )
        return replace(
            self,
            quorum=quorum,
            bookies=quorum.ensemble_size + stream.choice([1, 1, 2]),
            habits=habits,
            mix=FaultMix.draw(stream).gentler(FAULTS_RARER),
        )


@dataclass(slots=True)
class _LedgerRun:
    scenario: LedgerScenario
    simulation: Simulation
    isolates: bool = False
    history: StormHistory = field(default_factory=StormHistory)
    readers: dict[str, StormReader] = field(default_factory=dict)
    watched: list[Seen] = field(default_factory=list)
    """The changes of records that a client got which watched during the whole run."""

    async def run(self) -> int:
        simulation, scenario = self.simulation, self.scenario
        stream = simulation.random("scenario")
        quorum = scenario.quorum or stream.choice(QUORUMS)
        names = [f"ledger-{number}" for number in range(stream.randint(1, scenario.names))]
        # Without a spare, writers wait for a bookie, and it comes back with entries missing; else it is replaced.
        spare = stream.random() < 0.5
        bookies = scenario.bookies or (
            max(quorum.ensemble_size, 4) + stream.randint(0, 1) if spare else quorum.ensemble_size
        )
        simulation.trace.add(f"{bookies} bookies, {tuple(quorum)}, {len(names)} ledgers")
        auditing = simulation.random("audit")
        audit = AuditSettings(auditing.choice([2.0, 10.0]), 1.0, 2.0) if auditing.random() < 0.5 else scenario.audit
        lease_seconds = stream.choice([1.0, 3.0, 6.0])
        if self.isolates:
            audit, lease_seconds = AUDIT, LEASE_SECONDS
        cluster = LedgerCluster(
            simulation,
            bookies,
            lease_seconds=lease_seconds,
            garbage_interval_seconds=2.0,
            audit=audit,
        )
        await cluster.start()
        habits = scenario.habits or Habits.draw(stream)
        clients = self._start_clients(cluster, names, quorum, habits, stream)
        simulation.machine("watcher").start(cluster.client_node(self._watch))
        storm = Storm(simulation, [cluster.metadata, *cluster.bookies.values()], mix=scenario.mix)
        beside = LedgerStorm(
            cluster, clients, flips=quorum.ack_quorum > 1, drains=audit is not None and bookies > quorum.ensemble_size
        )
        isolation = Isolation(cluster, clients)
        copies = OlderCopies(cluster, quorum.ack_quorum, [beside.flipping], scenario.older)
        simulation.start_soon((isolation if self.isolates else beside).rage, scenario.storm_seconds)
        simulation.start_soon(copies.rage, scenario.storm_seconds)
        await storm.rage(scenario.storm_seconds)
        beside.calm()
        isolation.calm()
        copies.calm()
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
        verdict = LedgerVerdict(simulation, self.history)
        with trio.move_on_after(scenario.liveness_seconds) as liveness:
            await self._finish(cluster, verdict, names, quorum, audited=audit is not None)
            cluster.stop_auditing()
            await simulation.sleep(SETTLED_SECONDS)
            await cluster.run_client("recorder", verdict.read_records)
            in_repair = await cluster.run_client("inspector", cluster.in_repair)
        wrong = self.history.check(verdict.records)
        if verdict.events:
            wrong += check_watch(verdict.events, self.watched, caught_up=False)
        if liveness.cancelled_caught:
            wrong.append(f"{scenario.liveness_seconds} virtual seconds after the storm: {self._missing(names)}")
        else:
            wrong += verdict.check_stores(cluster, beside.flipped, in_repair, settled=audit is not None)
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

    async def _finish(
        self, cluster: LedgerCluster, verdict: LedgerVerdict, names: list[str], quorum: Quorum, *, audited: bool
    ) -> None:
        """Waits until every ledger is read whole, by the finisher and the readers, and is repaired if it is audited."""
        await cluster.run_client("finisher", lambda client: verdict.finish(client, names, quorum))
        while not all(map(self._caught_up, self.readers.values())):
            await self.simulation.sleep(RETRY_SECONDS)
        await cluster.run_client("inspector", cluster.repaired)
        if audited:
            await cluster.run_client("settler", lambda client: verdict.settle(client, [*names, MADE], quorum))

    async def _watch(self, client: LedgerClient) -> None:
        async with client.metadata.watch(LEDGERS, Revision(1)) as batches:
            async for batch in batches:
                self.watched += [(batch.revision, event.key, event.current is None) for event in batch.events]

    def _caught_up(self, reader: StormReader) -> bool:
        """Whether the reader has read its whole ledger, or follows none."""
        ledger = reader.following
        if ledger is None:
            return True
        life = self.history.life(ledger.id, ledger.name)
        if life.final is None:
            # The ledger was deleted, or a killed client's request created it after the finisher had looked for ledgers.
            # The answer to a deletion may be lost; a follower of a sealed ledger has no reason to ask again.
            at_end = ledger.record.sealed and reader.next_entry > ledger.last_add_confirmed
            return at_end or self.history.gone(life) or not life.appends
        return reader.next_entry > max(life.final, default=EntryId(-1))

    def _missing(self, names: list[str]) -> str:
        done = {life.name for life in self.history.lives.values() if life.final is not None}
        open_names = [name for name in names if name not in done]
        late = [
            f"{name} at entry {reader.next_entry} of {reader.following and reader.following.id}"
            for name, reader in self.readers.items()
            if not self._caught_up(reader)
        ]
        return f"not read whole: {', '.join(open_names) or 'none'}; readers behind: {', '.join(late) or 'none'}"
