"""The base of a simulation: the seed, virtual time, network and trace that its machines and its scenario share."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from gnomon.runtime.timers import Timers
from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.simulation.network.simulated_network import Fabric
from gnomon.testing.simulation.simulated_clock import VirtualClock
from gnomon.testing.simulation.trace import Trace

TAIL_LINES = 40
SCENARIO_FAILED = "the scenario failed"


class SimulationFailed(AssertionError):
    """A node ended with an error, or the simulation did not end; its text holds the seed and the trace's tail."""


class Ground:
    """The seed, the folder, virtual time, the network and the trace of one simulation; the first failure ends it."""

    def __init__(self, seed: int | str, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.clock = VirtualClock()
        self.timers = Timers(self.clock)
        self.trace = Trace(self.clock.monotonic)
        self.coverage = Coverage()
        self.network = Fabric(self.timers, self.random("network"), self.trace)
        self.failure: tuple[str, BaseException] | None = None
        self.nursery: trio.Nursery | None = None

    def random(self, name: str) -> random.Random:
        """The random stream of one concern: a draw from it does not shift any other."""
        return random.Random(f"{self.seed}/{name}")

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Runs an async function beside the scenario; its error ends the simulation."""
        assert self.nursery is not None, "the simulation is not running"
        self.nursery.start_soon(run, *args)

    def fail(self, what: str, error: BaseException) -> None:
        """Ends the simulation with a failure; the first one counts.

        Args:
            what: a text for the trace and for the text of the SimulationFailed.
            error: the cause.
        """
        if self.failure is None:
            self.trace.add(f"FAILED: {what}")
            self.failure = (what, error)
            assert self.nursery is not None
            self.nursery.cancel_scope.cancel()

    def raise_failure(self) -> None:
        """Raises the failure with seed and trace, if there is one."""
        if self.failure is None:
            return
        what, error = self.failure
        if what == SCENARIO_FAILED:
            error.add_note(self.story())
            raise error
        raise SimulationFailed(f"{what}: {error!r}\n{self.story()}") from error

    def story(self) -> str:
        """The text beside an error: the seed, and the last lines of the trace."""
        return f"seed {self.seed}, the last lines of its trace:\n{self.trace.tail(TAIL_LINES)}"
