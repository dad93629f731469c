"""A stage: a query of Spark that has to run, in one driver after the other, as under a supervisor."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import psutil

from gnomon.testing.storms.drivers.driver_process import ENDED, FAILED, IDLE, DriverProcess
from gnomon.testing.storms.drivers.spare_drivers import SpareDrivers

RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The pauses before a stage that ended by itself runs again; the last one is repeated. Spark gives a Python worker ten
seconds to start, which a busy machine needs for one of them, and does not have for those of several attempts."""
WITHOUT_JVM_SECONDS: Final = 30.0
"""The time within which a driver has to notice the end of its JVM."""
ORPHAN_SECONDS: Final = 60.0
"""The time within which a JVM has to notice the end of its driver."""


class SparkStage:
    """One stage; `tick` has to be called often.

    Args:
        command: for the drivers.
    """

    def __init__(self, name: str, command: Mapping[str, object], spares: SpareDrivers) -> None:
        self.name = name
        self.failures: list[str] = []
        """The errors of stages that ended by themselves."""
        self.hangs: list[str] = []
        """Reports of processes that did not notice the end of others."""
        self._command, self._spares = command, spares
        self._driver: DriverProcess | None = None
        self._due = 0.0
        self._retries = 0
        self._stopping = False
        self._jvm_killed_at: float | None = None
        self._orphans: list[tuple[float, psutil.Process]] = []

    @property
    def runs(self) -> bool:
        """Whether a driver runs it, as far as is known."""
        return self._driver is not None and self._driver.state != FAILED and self._jvm_killed_at is None

    def tick(self) -> None:
        """Starts the stage if it is due, and looks after its processes."""
        now = time.monotonic()
        if self._driver is None:
            self._start(now)
            return
        if self._stopping:
            self._stop(self._driver)
            return
        before = self._driver.state
        self._driver.look()
        if self._driver.state == FAILED:
            self._failed(self._driver, before, now)
        elif self._driver.state == ENDED:
            self._drop(now)
        elif self._jvm_killed_at is not None and now > self._jvm_killed_at + WITHOUT_JVM_SECONDS:
            self.hangs.append(f"the driver of {self.name} did not notice the end of its JVM: {self._driver.log}")
            self._driver.kill()
            self._drop(now)

    def _start(self, now: float) -> None:
        if now >= self._due and not self._stopping:
            self._driver = self._spares.take()
        if self._driver is not None:
            self._driver.run(self._command)

    def _failed(self, driver: DriverProcess, before: str, now: float) -> None:
        if before != FAILED:
            self.failures.append(driver.error)
            self._due = max(self._due, now + RETRY_SECONDS[min(self._retries, len(RETRY_SECONDS) - 1)])
            self._retries += 1
        elif now >= self._due and self._jvm_killed_at is None:
            driver.run(self._command)

    def _drop(self, now: float) -> None:
        """Forgets a driver that has ended."""
        self._driver, self._jvm_killed_at, self._retries = None, None, 0
        self._due = max(self._due, now)

    # --- kills; each returns whether there was something to kill ---

    def kill(self, seconds: float) -> bool:
        """Kills the driver; another one continues in some seconds."""
        if self._driver is None:
            return False
        self._driver.kill()
        self._due = time.monotonic() + seconds
        self._drop(0)
        return True

    def kill_python(self, seconds: float) -> bool:
        """Kills the Python process of the driver; another driver continues in some seconds, beside the old JVM."""
        if self._driver is None:
            return False
        now, jvm = time.monotonic(), self._driver.jvm
        if jvm is not None:
            self._orphans.append((now, jvm))
        self._driver.kill_python()
        self._due = now + seconds
        self._drop(0)
        return True

    def kill_jvm(self, seconds: float) -> bool:
        """Kills the JVM; another driver continues in some seconds, once the Python process has ended."""
        jvm = None if self._driver is None else self._driver.jvm
        if jvm is None:
            return False
        jvm.kill()
        self._jvm_killed_at = time.monotonic()
        self._due = self._jvm_killed_at + seconds
        return True

    def kill_worker(self, which: float) -> bool:
        """Kills a Python worker; `which` is a place among them, from 0 to 1."""
        workers = [] if self._driver is None else self._driver.workers()
        if not workers:
            return False
        try:
            workers[int(which * len(workers))].kill()
        except psutil.NoSuchProcess:
            return False
        return True

    # --- its end ---

    def stop(self) -> None:
        """Asks the stage to end; `ended` is true once it has."""
        self._stopping = True
        if self._driver is not None:
            self._driver.stop()

    @property
    def ended(self) -> bool:
        """Whether the stage was stopped and no driver runs it."""
        return self._stopping and self._driver is None

    def _stop(self, driver: DriverProcess) -> None:
        """Gives an idle driver back, and ends one whose stage has failed."""
        driver.look()
        if driver.state == IDLE:
            self._spares.give(driver)
        elif driver.state in (FAILED, ENDED):
            driver.kill()
        else:
            return
        self._drop(0)

    def orphans_ended(self) -> bool:
        """Whether the JVMs of killed drivers have ended; one that takes too long is reported, and killed."""
        for since, jvm in list(self._orphans):
            if not jvm.is_running():
                self._orphans.remove((since, jvm))
            elif time.monotonic() > since + ORPHAN_SECONDS:
                self.hangs.append(f"a JVM of {self.name} did not notice the end of its driver")
                jvm.kill()
        return not self._orphans

    def dump(self) -> None:
        """Has the driver write the stacks of all threads to its log."""
        if self._driver is not None:
            self._driver.dump()

    def close(self) -> None:
        """Kills its processes."""
        if self._driver is not None:
            self._driver.kill()
        for _, jvm in self._orphans:
            if jvm.is_running():
                jvm.kill()
