"""The simulated `World` of one process: the virtual clock, network and disk of its machine.

A node cannot tell it from the production world; `Machine.start` makes one and hands it to the node:

    async def node(world):
        with world.disk.lock(Path("/data")):
            environment = world.disk.open_environment(Path("/data/log"), databases=["main"], ...)
            listener = await world.network.listen("", 9092, accept)
            await trio.sleep_forever()

Paths are absolute on the machine's own disk; other machines are reached by their names.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from gnomon.runtime.world import Clock, Disk, Network
from gnomon.testing.coverage import SimulatedLogger
from gnomon.testing.process import Process
from gnomon.testing.simulated_clock import SimulatedClock
from gnomon.testing.simulated_disk import SimulatedDisk
from gnomon.testing.simulated_network import SimulatedNetwork

T = TypeVar("T")


class SimulatedWorld:
    """A `World`; `logger` is a `runtime.logs.Logger` for the node that it belongs to."""

    def __init__(
        self,
        process: Process,
        clock: SimulatedClock,
        network: SimulatedNetwork,
        disk: SimulatedDisk,
        logger: SimulatedLogger,
        seed: str,
    ) -> None:
        self.clock: Clock = clock
        self.network: Network = network
        self.disk: Disk = disk
        self.logger = logger
        self._process = process
        self._seed = seed

    def random(self, name: str) -> random.Random:
        """See `World.random`: the same for the same seed, machine, number of the start and name."""
        self._process.check()
        return random.Random(f"{self._seed}/{self._process.name}/{name}")

    @property
    def stop_requested(self) -> trio.Event:
        """Is set by SIGTERM, which ends a process that never asked for this event."""
        if self._process.stop_requested is None:
            self._process.stop_requested = trio.Event()
        return self._process.stop_requested

    def blocking(self, call: Callable[..., T], *args: object) -> Awaitable[T]:
        """See `World.blocking`: runs inline, in no virtual time."""
        self._process.check()
        return self._inline(call, args)

    async def _inline(self, call: Callable[..., T], args: tuple[object, ...]) -> T:
        await trio.lowlevel.checkpoint()
        self._process.check()
        return call(*args)
