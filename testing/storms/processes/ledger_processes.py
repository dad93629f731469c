"""A metadata service and bookies in processes on the loopback, which end with this process; for tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from gnomon.testing.daemon import START_SECONDS_MAX, Daemon

# Repairs begin soon, and commits are not synced to the disk.
BOOKIE_OPTIONS = (
    *("--set", "auditor.interval_seconds=0.2", "--set", "auditor.grace_seconds=3600"),
    *("--set", "auditor.lease_seconds=1", "--set", "bookie_service.lease_seconds=2", "--durability", "none"),
)


class LedgerProcesses:
    """A cluster of bookies; as a context manager, it ends with its block."""

    def __init__(self, directory: Path, bookies: int = 3) -> None:
        """The processes store below `directory`; there are `bookie-1` to `bookie-{bookies}`."""
        self.directory = directory
        self.daemons: dict[str, Daemon] = {}
        self._first = bookies

    @property
    def metadata(self) -> str:
        """The address of the metadata service."""
        return self.daemons["metadata"].ready["metadata"]

    def __enter__(self) -> Self:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            command = ("metadata", "--data-dir", self.directory / "metadata", "--port", 0, "--admin-port", 0)
            self._start("metadata", *command, "--durability", "none")
            for number in range(1, self._first + 1):
                self.start_bookie(f"bookie-{number}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self.daemons.values():
            daemon.kill()

    def start_bookie(self, name: str, *options: object) -> Daemon:
        """Starts a bookie on the directory of its name."""
        where = ("--data-dir", self.directory / name, "--port", 0, "--admin-port", 0, "--metadata", self.metadata)
        return self._start(name, "bookie", "--name", name, *where, *BOOKIE_OPTIONS, *options)

    def _start(self, name: str, *command: object) -> Daemon:
        daemon = self.daemons[name] = Daemon(command, self.directory / f"{name}.log")
        return daemon.wait_ready()


def wait_until(holds: Callable[[], object], what: str, seconds: float = START_SECONDS_MAX) -> None:
    """Blocks until `holds` returns a true value.

    Raises:
        TimeoutError: that did not happen in time; the text is `what`.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)
