"""A simulated machine: hardware that survives the node running on it.

machine = simulation.machine("broker-1")
machine.start(node)       # node(world) runs as a process of its own
machine.kill()            # as kill -9: the disk keeps what LMDB wrote, peers see the streams end
machine.start()           # the same node again, with a new world on the same disk
machine.power_off()       # the disk falls back to its last sync, peers get no notice
machine.terminate()       # as SIGTERM: the node ends by itself when it is done
await machine.stop()      # cancels the node and lets it clean up
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from gnomon.metadata.client import MetadataError
from gnomon.runtime.world import WorldError
from gnomon.testing.simulation.coverage import SimulatedLogger
from gnomon.testing.simulation.disk.simulated_disk import MachineDisk, SimulatedDisk
from gnomon.testing.simulation.ground import Ground
from gnomon.testing.simulation.network.simulated_network import SimulatedNetwork
from gnomon.testing.simulation.process import SimulatedProcess
from gnomon.testing.simulation.simulated_clock import MachineClock, SimulatedClock
from gnomon.testing.simulation.simulated_world import SimulatedWorld

C = TypeVar("C")
T = TypeVar("T")
Node: TypeAlias = Callable[[SimulatedWorld], Awaitable[object]]
"""The program of a machine: an async function that gets its world. It ends by itself, by a fault, or with an error."""


class Machine:
    """The hardware under one node at a time; made by `Simulation.machine`.

    Attributes:
        name: the machine's address in the network, and its name in the trace.
        clock: the wall clock, which may be wrong.
        disk: the disk, which survives processes; `disk.conditions` change its behaviour.
        process: the running process, None while there is none.
    """

    def __init__(self, ground: Ground, name: str) -> None:
        self.name = name
        self.clock = MachineClock()
        self.disk = MachineDisk(name, ground.folder / name, ground.timers, ground.random(f"disk/{name}"), ground.trace)
        self.process: SimulatedProcess | None = None
        self._ground = ground
        self._node: Node | None = None
        self._starts = 0

    @property
    def running(self) -> bool:
        """Whether its node is running."""
        return self.process is not None

    def start(self, node: Node | None = None) -> None:
        """Powers the machine on if needed and runs a node.

        Args:
            node: an async function of a `SimulatedWorld`, called with the world of the new process. None runs the
                last one again.

        Raises:
            AssertionError: the machine runs already, or has no node yet.
        """
        assert self.process is None, f"{self.name} runs already: stop, kill or power_off it first"
        self._node = node or self._node
        assert self._node is not None, f"{self.name} has no node yet: give start() one"
        self._starts += 1
        ground = self._ground
        process = SimulatedProcess(self.name, self._starts, self._crashed, ground.clock.monotonic())
        self.process = process
        ground.trace.add(f"{process.name}  starts")
        ground.network.power_on(self.name)
        world = SimulatedWorld(
            process,
            SimulatedClock(process, self.clock),
            SimulatedNetwork(process, ground.network),
            SimulatedDisk(process, self.disk),
            SimulatedLogger(process.name, ground.trace, ground.coverage),
            str(ground.seed),
        )
        ground.start_soon(self._run, process, self._node, world)

    def kill(self) -> None:
        """Ends the process as SIGKILL does; no effect when it does not run."""
        self._die("is killed", power_lost=False)

    def power_off(self) -> None:
        """Cuts the machine's power; no effect when it does not run."""
        self._die("loses power", power_lost=True)

    def terminate(self) -> None:
        """Asks the node to end, as SIGTERM does: a node that does not wait for that is killed."""
        process = self.process
        if process is None:
            return
        if process.stop_requested is None:
            self.kill()
            return
        self._ground.trace.add(f"{process.name}  is asked to stop")
        process.stop_requested.set()

    async def stop(self) -> None:
        """Cancels the node and waits until it has ended."""
        process = self.process
        if process is not None:
            self._ground.trace.add(f"{process.name}  is stopped")
            process.scope.cancel()
            await process.ended.wait()

    def _die(self, how: str, power_lost: bool) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        self._ground.trace.add(f"{process.name}  {how}")
        process.killed = True
        self._ground.network.kill(process, silent=power_lost)
        self.disk.stop(power_lost)
        process.scope.cancel()

    async def _run(self, process: SimulatedProcess, node: Node, world: SimulatedWorld) -> None:
        try:
            with process.scope:
                await node(world)
        except BaseException as error:
            if _is_interrupt(error):
                raise
            # A dead node's errors are those of a program whose world ended; nothing is left to receive them.
            if not process.killed:
                process.crash(error)
        if not process.killed:
            self._die("ends", power_lost=False)
        process.ended.set()

    def _crashed(self, process: SimulatedProcess, error: BaseException) -> None:
        if process.may_stop and _is_outside(error):
            self._ground.trace.add(f"{process.name}  stops itself: {_kinds(error)}")
            self._die("ends", power_lost=False)
        else:
            self._ground.fail(f"{process.name} failed", error)


async def result_of(
    start: Callable[[str, Callable[[C], Awaitable[object]]], Machine], name: str, work: Callable[[C], Awaitable[T]]
) -> T:
    """Runs `work` on a machine that `start(name, work)` starts, until it is done, and returns its result."""
    results: list[T] = []

    async def keep(client: C) -> None:
        results.append(await work(client))

    process = start(name, keep).process
    assert process is not None
    await process.ended.wait()
    assert results, f"client {name!r} ended without a result"
    return results[0]


def _is_outside(error: BaseException) -> bool:
    """Whether only the world or the metadata service failed."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_outside(inner) for inner in error.exceptions)
    return isinstance(error, WorldError | MetadataError)


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds(inner, kind) for inner in error.exceptions)
    return isinstance(error, kind)


def _kinds(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(_kinds(inner) for inner in error.exceptions)
    return type(error).__name__


def _is_interrupt(error: BaseException) -> bool:
    return _holds(error, KeyboardInterrupt) or _holds(error, SystemExit)
