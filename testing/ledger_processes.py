"""A metadata service and bookies in processes of their own on the loopback, which end with this one; for tests."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import gnomon

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
# Repairs begin soon, and syncing is left to the operating system.
BOOKIE_OPTIONS = (
    *("--set", "auditor.interval_seconds=0.2", "--set", "auditor.grace_seconds=3600"),
    *("--set", "auditor.lease_seconds=1", "--set", "bookie_service.lease_seconds=2", "--durability", "none"),
)


class DaemonNotStarted(Exception):
    """The daemon ended or stayed silent before it was ready; the text holds what it wrote."""


def spawn(command: Sequence[object], log: Path, prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Starts `gnomon` with these words, as a child that ends with this process; what it writes is appended to `log`.

    Args:
        prefix: a command that runs it in its own place (`nsenter ...`).
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GNOMON_")}
    paths = [str(Path(gnomon.__file__).parents[1]), *filter(None, [inherited.get("PYTHONPATH")])]
    with open(log, "ab") as stderr:
        return subprocess.Popen(
            [*prefix, sys.executable, "-P", "-m", "gnomon.cli.child", *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**inherited, "PYTHONPATH": os.pathsep.join(paths)},
            process_group=0,
        )


def ready_facts(line: str) -> dict[str, str]:
    """What a `ready` line says."""
    return dict(re.findall(r"(\w+)=(\S+)", line))


class Daemon:
    """One `gnomon` process; `ready` holds the facts of its line."""

    def __init__(self, command: Sequence[object], log: Path) -> None:
        """Starts it and returns once it serves.

        Raises:
            DaemonNotStarted: with what it wrote.
        """
        self.log = log
        self._process = spawn(command, log)
        line = self._first_line()
        if not line.startswith("ready "):
            self.kill()
            raise DaemonNotStarted(f"gnomon {command[0]} was not ready; it wrote:\n{line}{log.read_text()}")
        self.ready = ready_facts(line)

    def _first_line(self) -> str:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            return self._process.stdout.readline() if selector.select(START_SECONDS_MAX) else ""

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Waits until it ended by itself; returns the exit code."""
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Idempotent."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def pause(self) -> None:
        """Stops it in its tracks: it stays connected and says nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undoes `pause`."""
        self._process.send_signal(signal.SIGCONT)


class LedgerProcesses:
    """A cluster of bookies; as a context manager it ends with its block."""

    def __init__(self, directory: Path, bookies: int = 3) -> None:
        """Stores below `directory`; starts `bookie-1` and so on."""
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
        """A bookie on the directory of its name."""
        where = ("--data-dir", self.directory / name, "--port", 0, "--admin-port", 0, "--metadata", self.metadata)
        return self._start(name, "bookie", "--name", name, *where, *BOOKIE_OPTIONS, *options)

    def _start(self, name: str, *command: object) -> Daemon:
        daemon = self.daemons[name] = Daemon(command, self.directory / f"{name}.log")
        return daemon


def wait_until(holds: Callable[[], object], what: str, seconds: float = START_SECONDS_MAX) -> None:
    """Blocks until the function `holds` says so.

    Raises:
        TimeoutError: `what` did not come about in time.
    """

    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)
