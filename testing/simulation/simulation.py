"""A whole cluster in one process on virtual time: the same seed gives the same trace, byte for byte.

async def scenario(simulation):
    server = simulation.machine("server")
    server.start(node)             # async def node(world): ...
    await simulation.sleep(5)      # virtual seconds
    server.power_off()
    server.start()

outcome = simulate(17, scenario)   # outcome.digest, outcome.trace, outcome.coverage

Nodes get everything from their world (`runtime.world.World`); code that bypasses it raises (`guard`). An error of a
node, or of the scenario, ends the simulation and comes with the seed and the last lines of the trace.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from unittest.mock import patch

import trio
import trio.testing

from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.simulation.ground import SCENARIO_FAILED, Ground
from gnomon.testing.simulation.guard import guard
from gnomon.testing.simulation.machine import Machine

T = TypeVar("T")

TRIO_VERSION = "0.35"
"""The simulation uses private names of this Trio, which the extra `simulation` installs."""

_MEMORY_FOLDER = Path("/dev/shm")


class UnsupportedTrio(Exception):
    """Another version of Trio is installed."""


@dataclass(frozen=True, slots=True)
class SimulationOutcome(Generic[T]):
    """The results of a simulation that did not fail."""

    result: T
    """The value that the scenario returned."""
    digest: str
    """The digest of the trace: equal for equal runs."""
    trace: list[str]
    """The newest lines of the transcript, oldest first (see `Trace`)."""
    coverage: Coverage
    """The counters of injected faults and logged events."""
    virtual_seconds: float
    """The virtual time at the end, which began at 0."""


class Simulation(Ground):
    """The machines of a simulation and the network between them, as its scenario directs them; made by `simulate`.

    Attributes:
        seed: the seed of the run.
        machines: the machines by name, in the order of their first use.
        network: every link between them, for cuts and conditions.
        clock: the virtual clock, which no fault affects.
        timers: calls at a virtual time: `timers.call_at(clock.monotonic() + seconds, call)`.
        trace: the transcript; a scenario may add lines.
        coverage: the counters; a scenario may count events.
    """

    def __init__(self, seed: int | str, folder: Path) -> None:
        super().__init__(seed, folder)
        self.machines: dict[str, Machine] = {}

    def machine(self, name: str) -> Machine:
        """The machine of this name, new on first use; other machines reach it by this name."""
        if name not in self.machines:
            self.machines[name] = Machine(self, name)
        return self.machines[name]

    async def sleep(self, seconds: float) -> None:
        """Waits for this many virtual seconds; the machines run meanwhile."""
        await trio.sleep(seconds)

    def heal(self) -> None:
        """Undoes every fault: links whole, disks healthy, clocks right; machines that are off stay off."""
        self.trace.add("network and disks heal")
        self.network.heal()
        for machine in self.machines.values():
            machine.clock.skew_ms = 0
            conditions = machine.disk.conditions
            conditions.slowness, conditions.still_until = 1.0, 0.0
            conditions.full, conditions.fail_next = False, False

    def _jump(self) -> None:
        """Called by Trio when no task can run: advances time until one can, by our timers or by Trio's deadlines.

        If a task waited for our timers, as in nodes, each packet on the network would cost a cancelled scope: a third
        of the time of a simulation. These are private names of Trio:
        `tests/testing/simulation/test_simulation.py` says what to do when they go.
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
            self.nursery = nursery
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
    """Trio runs its tasks in an order drawn from `seed`; its own random state is restored afterwards.

    These are private names of Trio: `tests/testing/simulation/test_simulation.py` says what to do when they go.
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
    on_line: Callable[[str], None] = lambda line: None,
) -> SimulationOutcome[T]:
    """Runs a scenario on virtual time, in this thread; not within a running Trio or asyncio loop.

    Args:
        seed: determines everything random.
        scenario: an async function of the `Simulation` that starts machines and directs the events. Processes that
            still run when it returns are killed.
        virtual_seconds_max: virtual seconds after which the simulation has failed.
        node_packages: names of packages or modules whose code, tests excepted, must not bypass its world.
        on_line: called with each line of the trace, while it runs.

    Raises:
        SimulationFailed: a node ended with an error, or the time was over; its text has the seed and the trace's tail.
        UnsupportedTrio: another Trio is installed.
        Exception: the error of the scenario, with the seed and the trace's tail as a note.
    """
    clock = autojumping_clock()
    with prepared(seed, node_packages, on_line) as simulation:
        results = trio.run(simulation.run, scenario, virtual_seconds_max, clock=clock)
    simulation.raise_failure()
    return SimulationOutcome(
        results[0],
        simulation.trace.digest(),
        list(simulation.trace.lines),
        simulation.coverage,
        clock.current_time(),
    )


@contextmanager
def prepared(
    seed: int | str, node_packages: tuple[str, ...], on_line: Callable[[str], None] = lambda line: None
) -> Iterator[Simulation]:
    """A simulation that may run inside the block: a folder for its disks, the seed's order of tasks, the guard."""
    _check_trio(trio.__version__)
    parent = _MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="gnomon-simulation-", dir=parent))
    try:
        simulation = Simulation(seed, folder)
        simulation.trace.on_line = on_line
        with deterministic_scheduling(seed), guard(node_packages):
            yield simulation
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_trio(version: str) -> None:
    if not version.startswith(f"{TRIO_VERSION}."):
        raise UnsupportedTrio(
            f"the simulation needs Trio {TRIO_VERSION}, and {version} is installed: pip install 'gnomon[simulation]'"
        )


def autojumping_clock() -> trio.testing.MockClock:
    """Virtual time: it does not advance while a task can run, and then jumps to the next deadline.

    Trio's own `current_time` adds the elapsed real time, times a rate of 0: 430 ns instead of 160, 100,000 times in a
    second of a processor, and far more if the real clock is read through a `guard`.
    """
    clock = trio.testing.MockClock(autojump_threshold=0)
    clock.current_time = lambda: clock._virtual_base  # type: ignore[method-assign]  # a private name, as in `_jump`
    return clock
