"""A whole cluster in one process on virtual time: the same seed gives the same trace, byte for byte.

    async def scenario(simulation):
        server = simulation.machine("server")
        server.start(node)                        # async def node(world): ...
        await simulation.sleep(5)                 # virtual seconds
        server.power_off()
        server.start()
        ...

    outcome = simulate(17, scenario)              # outcome.digest, outcome.trace, outcome.coverage

Nodes get everything from their world (`runtime.world.World`); what goes around it raises (`guard`). An error out of a
node, or out of the scenario, ends the simulation and comes with the seed and the last lines of the trace.
"""

from __future__ import annotations

import math
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from unittest.mock import patch

import trio
import trio.testing

from gnomon.runtime.timers import Timers
from gnomon.testing.coverage import Coverage
from gnomon.testing.guard import guard
from gnomon.testing.machine import Machine
from gnomon.testing.simulated_clock import VirtualClock
from gnomon.testing.simulated_network import Fabric
from gnomon.testing.trace import Trace

T = TypeVar("T")

TAIL_LINES = 40
SCENARIO_FAILED = "the scenario failed"
_MEMORY_FOLDER = Path("/dev/shm")


class SimulationFailed(AssertionError):
    """A node ended with an error, or the simulation did not end; its text holds the seed and the trace's tail."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a simulation leaves behind."""

    result: T
    digest: str
    """Equal for equal runs."""
    trace: list[str]
    coverage: Coverage
    virtual_seconds: float


class Simulation:
    """The machines, the network between them, and the faults' handles on both; made by `simulate`."""

    def __init__(self, seed: int | str, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.clock = VirtualClock()
        self.timers = Timers(self.clock)
        self.trace = Trace(self.clock.monotonic)
        self.coverage = Coverage()
        self.network = Fabric(self.timers, self.random("network"), self.trace)
        self.machines: dict[str, Machine] = {}
        self.failure: tuple[str, BaseException] | None = None
        self._nursery: trio.Nursery | None = None

    def random(self, name: str) -> random.Random:
        """The random stream of one concern: a draw from it does not shift any other."""
        return random.Random(f"{self.seed}/{name}")

    def machine(self, name: str) -> Machine:
        """The machine of this name, new on first use."""
        if name not in self.machines:
            self.machines[name] = Machine(self, name)
        return self.machines[name]

    async def sleep(self, seconds: float) -> None:
        """Lets virtual time pass."""
        await trio.sleep(seconds)

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Runs a task of the scenario beside it; its error ends the simulation."""
        assert self._nursery is not None, "the simulation is not running"
        self._nursery.start_soon(run, *args)

    def heal(self) -> None:
        """Undoes every fault: links whole, disks healthy, clocks right; machines that are off stay off."""
        self.trace.add("network and disks heal")
        self.network.heal()
        for machine in self.machines.values():
            machine.clock.skew_ms = 0
            conditions = machine.disk.conditions
            conditions.slowness, conditions.still_until = 1.0, 0.0
            conditions.full, conditions.fail_next = False, False

    def fail(self, what: str, error: BaseException) -> None:
        """Ends the simulation with a failure; the first one counts."""
        if self.failure is None:
            self.trace.add(f"FAILED: {what}")
            self.failure = (what, error)
            assert self._nursery is not None
            self._nursery.cancel_scope.cancel()

    def raise_failure(self) -> None:
        """Raises what made it fail, with seed and trace, where it failed."""
        if self.failure is None:
            return
        what, error = self.failure
        if what == SCENARIO_FAILED:
            error.add_note(self.story())
            raise error
        raise SimulationFailed(f"{what}: {error!r}\n{self.story()}") from error

    def story(self) -> str:
        """What stands beside an error: the seed, and what happened last."""
        return f"seed {self.seed}, the last lines of its trace:\n{self.trace.tail(TAIL_LINES)}"

    def _jump(self) -> None:
        """Trio calls it when no task can run: time goes on until one can, by our timers or by Trio's deadlines.

        Were there a task that waits for our timers, as nodes have one for theirs, each packet on the network would cost
        a cancelled scope: a third of a simulation. These are private names of Trio: `tests/testing/test_simulation.py`
        says what to do when they go.
        """
        runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner
        clock = runner.clock
        assert isinstance(clock, trio.testing.MockClock)
        while not runner.runq:
            ours, trios = self.timers.next_deadline, runner.deadlines.next_deadline()
            if math.isinf(min(ours, trios)):
                return
            clock.jump(max(0.0, min(ours, trios) - clock.current_time()))
            try:
                self.timers.run_due()
            except Exception as error:
                self.fail("a timer of the simulation failed", error)
            if trios <= clock.current_time():
                return

    async def run(self, scenario: Callable[[Simulation], Awaitable[T]], virtual_seconds_max: float) -> list[T]:
        """Runs the scenario; an empty list when it failed, see `failure`."""
        results: list[T] = []
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            clock = trio.lowlevel.current_clock()
            clock._autojump = self._jump  # type: ignore[attr-defined]  # see `_jump`
            try:
                with trio.fail_after(virtual_seconds_max):
                    results.append(await scenario(self))
            except trio.TooSlowError as error:
                self.fail(f"not over after {virtual_seconds_max} virtual seconds", error)
            except Exception as error:
                self.fail(SCENARIO_FAILED, error)
            finally:
                for machine in self.machines.values():
                    machine.kill()
                nursery.cancel_scope.cancel()
        return results


@contextmanager
def deterministic_scheduling(seed: int | str) -> Iterator[None]:
    """Trio runs its tasks in an order drawn from `seed`; its own random state comes back afterwards.

    These are private names of Trio: `tests/testing/test_simulation.py` says what to do when they go.
    """
    core = trio._core._run
    state = core._r.getstate()
    core._r.seed(f"{seed}/scheduler")
    try:
        with patch.object(core, "_ALLOW_DETERMINISTIC_SCHEDULING", True):
            yield
    finally:
        core._r.setstate(state)


def simulate(
    seed: int | str,
    scenario: Callable[[Simulation], Awaitable[T]],
    *,
    virtual_seconds_max: float = 3600.0,
    node_packages: tuple[str, ...] = ("gnomon",),
    told: Callable[[str], None] = lambda line: None,
) -> Outcome[T]:
    """Runs a scenario on virtual time.

    Args:
        seed: everything random follows from it.
        scenario: starts machines and says what happens; when it returns, what still runs is killed.
        virtual_seconds_max: a simulation that takes longer has failed.
        node_packages: whose code may not go around its world.
        told: gets the trace line by line, while it runs.

    Raises:
        SimulationFailed: a node failed, or the time was over.
        Exception: what the scenario raised, with seed and trace noted on it.
    """
    clock = autojumping_clock()
    with prepared(seed, node_packages, told) as simulation:
        results = trio.run(simulation.run, scenario, virtual_seconds_max, clock=clock)
    simulation.raise_failure()
    return Outcome(
        results[0],
        simulation.trace.digest(),
        list(simulation.trace.lines),
        simulation.coverage,
        clock.current_time(),
    )


@contextmanager
def prepared(
    seed: int | str, node_packages: tuple[str, ...], told: Callable[[str], None] = lambda line: None
) -> Iterator[Simulation]:
    """A simulation that may run inside the block: a folder for its disks, the seed's order of tasks, the guard."""
    parent = _MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="gnomon-simulation-", dir=parent))
    try:
        simulation = Simulation(seed, folder)
        simulation.trace.told = told
        with deterministic_scheduling(seed), guard(node_packages):
            yield simulation
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def autojumping_clock() -> trio.testing.MockClock:
    """Virtual time: it stands while a task can run, and then jumps to the next deadline.

    Trio's own `current_time` adds what has passed by the real clock, times a rate of 0: 430 ns instead of 160, 100,000
    times in a second of a processor, and far more where the real clock is asked through a `guard`.
    """
    clock = trio.testing.MockClock(autojump_threshold=0)
    clock.current_time = lambda: clock._virtual_base  # type: ignore[method-assign]  # a private name, as in `_jump`
    return clock
