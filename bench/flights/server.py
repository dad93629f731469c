"""The broker under the job: a standalone node in a process of its own, killed and started again on the same port."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

READY_SECONDS = 60
POLL_SECONDS = 0.005
LAST_LINES = 3
READY = re.compile(rb"^ready kafka=(?P<kafka>\S+) ", re.M)


class NotReady(Exception):
    """The broker ended, or did not say in time that it is ready."""


class Server:
    """One data directory and, from the first start on, one port.

    Args:
        folder: an existing directory for the data and for one log file per start.
    """

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.bootstrap = ""
        self.start_seconds: list[float] = []
        """How long each start took, from the fork to the line that says ready."""
        self._log = folder / "broker.log"
        self._port = 0
        self._process: psutil.Popen | None = None
        self._ended_cpu_seconds = 0.0

    @property
    def pid(self) -> int:
        assert self._process is not None, "asked for the process of a broker that was not started"
        return self._process.pid

    def start(self) -> None:
        """Returns when the broker serves. Raises NotReady."""
        began = time.monotonic()
        self._log = self._log.with_name(f"broker-{len(self.start_seconds) + 1}.log")
        command = [sys.executable, "-m", "gnomon.cli.main", "standalone", "--data-dir", str(self.data_dir)]
        with self._log.open("wb") as sink:
            # In a session of its own, so that Ctrl-C does not reach it: it shall die by `kill` alone.
            self._process = psutil.Popen(
                [*command, "--kafka-port", str(self._port), "--native-port", "0", "--admin-port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        while (said := READY.search(self._log.read_bytes())) is None:
            if self._process.poll() is not None or time.monotonic() - began > READY_SECONDS:
                raise NotReady("the broker did not become ready")
            time.sleep(POLL_SECONDS)
        self.start_seconds.append(time.monotonic() - began)
        self.bootstrap = said["kafka"].decode()
        self._port = int(self.bootstrap.rpartition(":")[2])

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Without effect when none runs."""
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
        if not self._log.exists():
            return ""
        lines = (line.strip(" |+-") for line in self._log.read_text(errors="replace").splitlines())
        return " / ".join([line for line in lines if line][-LAST_LINES:])
