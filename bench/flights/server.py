"""The broker of the first act: a standalone node in a process of its own, killed and started on the same port."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from bench.flights.launch import last_words, launch


class FlightServer:
    """One data directory and, from the first start on, one port.

    Args:
        folder: an existing directory for the data and for one log file per start.
    """

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.bootstrap = ""
        self.start_seconds: list[float] = []
        """The time of each start, from the fork to the `ready` line."""
        self._log = folder / "broker.log"
        self._port = 0
        self._process: psutil.Popen | None = None
        self._ended_cpu_seconds = 0.0

    @property
    def pid(self) -> int:
        assert self._process is not None, "asked for the process of a broker that was not started"
        return self._process.pid

    def start(self) -> None:
        """Starts the broker; returns when it serves. Raises NotReady."""
        began = time.monotonic()
        self._log = self._log.with_name(f"broker-{len(self.start_seconds) + 1}.log")
        ports = ("--kafka-port", str(self._port), "--native-port", "0", "--admin-port", "0")
        words = ("standalone", "--data-dir", str(self.data_dir), *ports)
        self._process, facts = launch(words, self._log, "the broker")
        self.start_seconds.append(time.monotonic() - began)
        self.bootstrap = facts["kafka"]
        self._port = int(self.bootstrap.rpartition(":")[2])

    def kill(self) -> None:
        """Sends SIGKILL, and waits for the end. No effect when none runs."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._ended_cpu_seconds = self.cpu_seconds()
            self._process.kill()
        self._process.wait()
        self._process = None

    def cpu_seconds(self) -> float:
        """Processor time of all lives so far."""
        if self._process is None or self._process.poll() is not None:
            return self._ended_cpu_seconds
        times = self._process.cpu_times()
        return self._ended_cpu_seconds + times.user + times.system

    def last_words(self) -> str:
        """The end of the newest log, on one line."""
        return last_words(self._log)
