"""Faults of storms over ledgers beside those of `faults.Storm`: paused machines, power loss of several bookies at once,
killed clients, flipped bits and decommissioned bookies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.node import FOLDER
from gnomon.bookie.storage.entry_store import ENTRIES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.testing.simulation.faults import stand_still
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerCluster

PAUSE_SECONDS_MAX = 12.0
"""Longer than leases, call timeouts and the RPC client's silence limit."""


class LedgerStorm:
    """Injects these faults; draws its own mix for each seed, as `faults.Storm` does."""

    KINDS = ("pause", "power loss of several", "kill of a client", "bit flip", "decommission")
    COUNTERS = tuple(f"fault/{kind}" for kind in KINDS)

    def __init__(
        self, cluster: LedgerCluster, clients: Sequence[Machine], *, flips: bool, drains: bool = False
    ) -> None:
        """Args:
        clients: machines that may be killed; they are started again.
        flips: whether bits of one bookie are flipped; each acknowledged entry needs a copy on another bookie.
        drains: whether one bookie is decommissioned and comes back empty; needs auditors and a spare bookie.
        """
        self.flipped: set[tuple[BookieId, LedgerId, EntryId]] = set()
        self._cluster, self._clients = cluster, list(clients)
        self._simulation = cluster.simulation
        self.random = self._simulation.random("ledger storm")
        self._inject: dict[str, Callable[[], None]] = {
            "pause": self._pause,
            "power loss of several": self._power_off_several,
        }
        if self._clients:
            self._inject["kill of a client"] = self._kill_client
        if flips:
            self._inject["bit flip"] = self._flip
        if drains:
            self._inject["decommission"] = self._decommission
        self.flipping = self.random.choice(cluster.names)
        """The bookie whose bits are flipped."""
        rates = {kind: 1 / (0.5 * 40 ** self.random.random()) for kind in self._inject if self.random.random() < 0.5}
        self._rates = rates
        self._raging = True

    async def rage(self, seconds: float) -> None:
        """Injects faults for `seconds` or until `calm`."""
        if not self._rates:
            return
        end = self._simulation.clock.monotonic() + seconds
        kinds, rates = zip(*self._rates.items(), strict=True)
        while True:
            await self._simulation.sleep(self.random.expovariate(sum(rates)))
            if not self._raging or self._simulation.clock.monotonic() >= end:
                return
            kind = self.random.choices(kinds, rates)[0]
            self._inject[kind]()

    def calm(self) -> None:
        """Injects no more faults."""
        self._raging = False

    def _count(self, kind: str, where: str) -> None:
        self._simulation.trace.add(f"fault: {kind} at {where}")
        self._simulation.coverage.count(f"fault/{kind}")

    def _pause(self) -> None:
        machine = self.random.choice(list(self._simulation.machines.values()))
        seconds = PAUSE_SECONDS_MAX * self.random.random()
        self._count("pause", machine.name)
        stand_still(self._simulation, machine, seconds)

    def _power_off_several(self) -> None:
        names = self._cluster.names
        names = self.random.sample(names, self.random.randint(min(2, len(names)), len(names)))
        self._count("power loss of several", ", ".join(names))
        for name in names:
            self._cluster.bookies[name].power_off()

    def _kill_client(self) -> None:
        machine = self.random.choice(self._clients)
        self._count("kill of a client", machine.name)
        if self.random.random() < 0.5:
            machine.kill()
        else:
            machine.power_off()
        self._simulation.start_soon(self._start_again, machine)

    async def _start_again(self, machine: Machine) -> None:
        await self._simulation.sleep(4 * self.random.random() ** 3)
        if self._raging and not machine.running:
            machine.start()

    def _decommission(self) -> None:
        if not self._cluster.decommissioned:
            name = self.random.choice(self._cluster.names)
            self._count("decommission", name)
            self._simulation.start_soon(self._cluster.decommission, name)

    def _flip(self) -> None:
        machine = self._cluster.bookies[self.flipping]
        path = self._cluster.data(self.flipping) / FOLDER
        if path in machine.disk.environments:
            key = machine.disk.flip_bit(path, ENTRIES)
            if key is not None:
                ledger, entry = ENTRY_KEY.unpack(key)
                self.flipped.add((self.flipping, LedgerId(ledger), EntryId(entry)))
                self._count("bit flip", f"{self.flipping}: entry {entry} of ledger {ledger}")
