"""The simulated `World` of one process: the virtual clock, network and disk of its machine.

A node cannot distinguish it from the production world; `Machine.start` makes one and passes it to the node:

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
from gnomon.testing.simulation.coverage import SimulatedLogger
from gnomon.testing.simulation.disk.simulated_disk import SimulatedDisk
from gnomon.testing.simulation.network.simulated_network import SimulatedNetwork
from gnomon.testing.simulation.process import SimulatedProcess
from gnomon.testing.simulation.simulated_clock import SimulatedClock

T = TypeVar("T")


class SimulatedWorld:
    """A `runtime.world.World` on simulated hardware, for one process; its arguments are the parts of the machine.

    Attributes:
        clock: virtual monotonic seconds, and wall milliseconds with the machine's skew.
        network: streams to other machines, by their names.
        disk: files and LMDB environments at absolute paths.
        logger: a `runtime.logs.Logger`, which a production node gets apart from its world. Events go into the trace
            and into the coverage.

    Raises:
        NodeKilled: from every call of a node that was killed or lost its power.
    """

    def __init__(
        self,
        process: SimulatedProcess,
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
        """Set by SIGTERM; a process that never asked for this event is killed instead."""
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
