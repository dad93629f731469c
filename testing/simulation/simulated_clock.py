"""Virtual time: monotonic seconds from the simulation's clock, wall time with a skew of each machine's own."""

from __future__ import annotations

import trio

from gnomon.testing.simulation.process import SimulatedProcess

EPOCH_MS = 1_700_000_000_000
"""Wall time at virtual second 0: 14 November 2023."""


class VirtualClock:
    """The clock of the simulation itself, which no fault affects."""

    def monotonic(self) -> float:
        """Virtual seconds since the simulation began."""
        return trio.current_time()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, without skew."""
        return EPOCH_MS + round(trio.current_time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Waits in virtual time."""
        await trio.sleep(seconds)


class MachineClock:
    """A machine's hardware clock: it survives the machine's processes and may be wrong.

    Attributes:
        skew_ms: milliseconds by which wall time is ahead; 0 at first. Monotonic time has no skew.
    """

    def __init__(self) -> None:
        self.skew_ms = 0


class SimulatedClock(VirtualClock):
    """`Clock` for one process."""

    def __init__(self, process: SimulatedProcess, machine: MachineClock) -> None:
        self._process = process
        self._machine = machine

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        self._process.check()
        return trio.current_time()

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`: with the machine's skew."""
        self._process.check()
        return super().wall_ms() + self._machine.skew_ms

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        self._process.check()
        await trio.sleep(seconds)
        self._process.check()
