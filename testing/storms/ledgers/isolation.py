"""A slow fault of a storm: isolates one bookie after the other, each long enough for other bookies to replace it.

    isolation = Isolation(cluster, writers)
    simulation.start_soon(isolation.rage, 15.0)
    isolation.calm()

1. Some clients are isolated together with a bookie: their entries reach no other bookie, and are orphans (copies that
   do not count) once other writers have claimed the ledgers. These clients reach the other machines again before the
   bookie does.
2. The bookie is away for AWAY_SECONDS. In that time auditors can replace it everywhere, and writers can claim after
   that: then no record refers to the bookie's entries any more.
3. The bookie is back when the next bookie is isolated, and may replace that one.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.bookie.ids import BookieId
from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerCluster

LEASE_SECONDS = 1.0
AUDIT = AuditSettings(grace_seconds=0.5, interval_seconds=0.5, lease_seconds=1.0)
"""Short times, as the bookies' leases are short, so that several bookies are replaced within one storm."""
AWAY_SECONDS = (3.0, 6.0)
"""At least the sum of lease, grace and a round of the audit; the rest is for claims."""
TOGETHER_SECONDS_MAX = 1.0


class Isolation:
    """Isolates bookies; needs spare bookies, and auditors with the settings AUDIT."""

    COUNTER = "fault/isolation"

    def __init__(self, cluster: LedgerCluster, clients: Sequence[Machine]) -> None:
        """Args:
        clients: machines that may be isolated with a bookie.
        """
        self._cluster, self._clients = cluster, list(clients)
        self._simulation = cluster.simulation
        self.random = self._simulation.random("isolation")
        self._raging = True

    async def rage(self, seconds: float) -> None:
        """Isolates one bookie after the other for `seconds` or until `calm`; never the same one twice in a row."""
        end = self._simulation.clock.monotonic() + seconds
        name: BookieId | None = None
        while True:
            await self._simulation.sleep(TOGETHER_SECONDS_MAX * self.random.random())
            if not self._raging or self._simulation.clock.monotonic() >= end:
                return
            name = self.random.choice([other for other in self._cluster.names if other != name])
            away_seconds = self.random.uniform(*AWAY_SECONDS)
            self._isolate(self._cluster.bookies[name], away_seconds)
            await self._simulation.sleep(away_seconds)

    def calm(self) -> None:
        """Isolates no more bookies; the present isolation ends by itself."""
        self._raging = False

    def _isolate(self, bookie: Machine, seconds: float) -> None:
        with_it = [client for client in self._clients if self.random.random() < 0.5]
        names = [bookie.name, *(client.name for client in with_it)]
        self._simulation.trace.add(f"fault: isolation of {', '.join(names)}")
        self._simulation.coverage.count(self.COUNTER)
        others = [name for name in self._simulation.machines if name not in names]
        self._cut(bookie.name, others, seconds)
        for client in with_it:
            for_seconds = seconds * self.random.random()
            self._cut(client.name, others, for_seconds)
            self._simulation.start_soon(self._go_over, client.name, bookie.name, for_seconds, seconds)

    async def _go_over(self, client: str, bookie: str, after_seconds: float, until_seconds: float) -> None:
        await self._simulation.sleep(after_seconds)
        if self._raging:
            self._cut(client, [bookie], until_seconds - after_seconds)

    def _cut(self, machine: str, others: Sequence[str], seconds: float) -> None:
        for other in others:
            self._simulation.network.clog(machine, other, seconds)
            self._simulation.network.clog(other, machine, seconds)
