"""Drivers that wait for a stage: the start of a JVM takes ten seconds, which a stage need not wait for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gnomon.testing.storms.drivers.driver_process import ENDED, IDLE, STARTING, DriverProcess


class SpareDrivers:
    """Keeps some drivers idle; `tick` has to be called often.

    Args:
        program: as for `DriverProcess`.
        folder: receives their logs.
        spares: the number of drivers to keep idle.
    """

    def __init__(self, program: Sequence[object], folder: Path, spares: int) -> None:
        self.started = 0
        """The number of drivers so far."""
        self.ended: list[str] = []
        """Reports of drivers that ended while they were idle."""
        self._program, self._folder, self._spares = program, folder, spares
        self._drivers: list[DriverProcess] = []

    def tick(self) -> None:
        """Starts a driver where one is missing, one at a time."""
        for driver in list(self._drivers):
            driver.look()
            if driver.state == ENDED:
                self._drivers.remove(driver)
                self.ended.append(f"a driver ended before it had a stage: {driver.log}")
        if len(self._drivers) < self._spares and all(driver.state != STARTING for driver in self._drivers):
            self.started += 1
            self._drivers.append(DriverProcess(self._program, self._folder / f"driver-{self.started}.log"))

    def completed(self) -> bool:
        """Does as `tick`, and returns whether enough drivers are idle."""
        self.tick()
        return sum(driver.state == IDLE for driver in self._drivers) >= self._spares

    def take(self) -> DriverProcess | None:
        """An idle driver, which is the caller's from now on; None if there is none."""
        found = next((driver for driver in self._drivers if driver.state == IDLE), None)
        if found is not None:
            self._drivers.remove(found)
        return found

    def give(self, driver: DriverProcess) -> None:
        """Takes an idle driver back."""
        self._drivers.insert(0, driver)

    def close(self) -> None:
        """Kills all of them."""
        for driver in self._drivers:
            driver.kill()
        self._drivers = []
