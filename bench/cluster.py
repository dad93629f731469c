"""A cluster: its metadata, bookies and brokers, each in a process of its own on this machine."""

from __future__ import annotations

import itertools
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bench.process import MeasuredProcess
from bench.system import TOPIC_CONFIG, Installation, Server, System, check_gnomon, gnomon
from bench.workspace import Workspace

BOOKIES = 3
"""Ledgers are on E = 3, Qw = 3, Qa = 2 of them by default."""
SEGMENT_BYTES = (1 << 31) - 1
METRICS_SECONDS = 10


class ClusterServer(Server):
    """Clients use the broker that was started last; its processor time and memory are those of the server."""

    def __init__(self, directory: Path, port: int, settings: Mapping[str, str]) -> None:
        """Starts all processes, and returns once they serve; every process gets `settings`.

        Raises:
            GeneratorFailed: one of the processes did not start.
        """
        self.members: dict[str, MeasuredProcess] = {}
        self._directory = directory
        self._told: Sequence[str] = [word for name in settings for word in ("--set", f"{name}={settings[name]}")]
        self._starts = itertools.count()
        try:
            at = self._start("metadata", "--data-dir", str(directory / "metadata"), "--port", "0")
            self._told = (*self._told, "--metadata", at.ready()["metadata"])
            self.start_bookies(range(1, BOOKIES + 1))
            self.start_broker(1, port)
        except BaseException:
            self.kill()
            raise

    def start_bookies(self, numbers: Sequence[int]) -> None:
        """Starts bookies, each on the directory of its number; returns once they serve."""
        started = []
        for name in (f"bookie-{number}" for number in numbers):
            where = ("--data-dir", str(self._directory / name), "--port", "0")
            started.append(self._start(name, *where, "--name", name))
        for process in started:
            process.ready()

    def start_broker(self, number: int, port: int = 0) -> None:
        """Starts a broker, and returns once it serves; clients use it from now on."""
        self.started_at_seconds = time.monotonic()
        ports = ("--kafka-port", str(port), "--native-port", "0")
        name = f"broker-{number}"
        where = ("--data-dir", str(self._directory / name))
        self.process = self._start(name, "--id", str(number), *ports, *where)
        self.port = int(self.process.ready()["kafka"].rpartition(":")[2])

    def _start(self, name: str, *arguments: str) -> MeasuredProcess:
        command = gnomon(name.partition("-")[0], *arguments, "--admin-port", "0", *self._told)
        process = self.members[name] = MeasuredProcess(command, self._directory / f"{name}-{next(self._starts)}.log")
        return process

    def metric(self, name: str) -> float:
        """A figure of the admin pages, summed over the live bookies."""
        bookies = [process for member, process in self.members.items() if member.startswith("bookie-")]
        return sum(_metric(process.ready()["admin"], name) for process in bookies if process.alive)

    def metadata_requests(self) -> float:
        """The requests that the metadata service has answered."""
        return _metric(self.members["metadata"].ready()["admin"], "metadata_requests_total")

    def kill(self) -> None:
        for process in reversed(self.members.values()):
            process.kill()


def _metric(admin: str, name: str) -> float:
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=METRICS_SECONDS) as page:
        lines = page.read().decode().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"gnomon_{name} "))
    return float(value)


@dataclass(frozen=True)
class Cluster(System):
    """One broker, three bookies and the metadata."""

    name: ClassVar[str] = "cluster"
    topic_config: ClassVar[Mapping[str, str]] = TOPIC_CONFIG | {"segment.bytes": str(SEGMENT_BYTES)}
    """A partition's records stay in one open ledger."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of all processes, besides the defaults."""

    def install(self, workspace: Workspace) -> Installation:
        check_gnomon()
        return super().install(workspace)

    def start(self, installation: Installation) -> ClusterServer:
        return ClusterServer(installation.data_dir, installation.port, self.settings)
