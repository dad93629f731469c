"""The cluster of the second act: metadata, one bookie and two brokers, by `gnomon cluster up`."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

from bench.flights.launch import GNOMON, last_words, launch

STOP_SECONDS = 30
ANSWER_SECONDS = 30


class NoAnswer(Exception):
    """A command on the cluster failed; the text is its output."""


class FlightCluster:
    """One bookie, so that it holds one copy of everything.

    Args:
        folder: an existing directory for the data and the logs.
    """

    def __init__(self, folder: Path) -> None:
        self.bootstrap = ""
        self.start_seconds = 0.0
        self._data_dir = folder / "cluster"
        self._log = folder / "cluster.log"
        self._metadata = ""
        self._process: psutil.Popen | None = None

    def start(self) -> None:
        """Starts the cluster; returns when all of it serves. Raises NotReady."""
        began = time.monotonic()
        words = ("cluster", "up", "--brokers", "2", "--bookies", "1", "--data-dir", str(self._data_dir))
        self._process, facts = launch(words, self._log, "the cluster")
        self.start_seconds = time.monotonic() - began
        self.bootstrap, self._metadata = facts["kafka"], facts["metadata"]

    def ask(self, *words: str) -> Any:
        """The answer of a command about the metadata, as JSON. Raises NoAnswer."""
        command = [*GNOMON, *words, "--metadata", self._metadata, "--output", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS)
        if done.returncode:
            raise NoAnswer(f"`gnomon {' '.join(words)}` failed: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def stop(self) -> None:
        """Sends SIGTERM, which ends all of its processes, and waits for the end. No effect when none runs."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except psutil.TimeoutExpired:
            self._process.kill()  # its children detect that and end
            self._process.wait()
        self._process = None

    def last_words(self) -> str:
        """The end of the log, on one line."""
        return last_words(self._log)
