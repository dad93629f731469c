"""A cluster that is started, killed and asked as `KafkaBroker` is: two brokers, three bookies, the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from gnomon.testing.storms.processes.cluster_processes import ClusterProcesses
from gnomon.testing.storms.processes.ledger_processes import wait_until

SETTINGS = {
    "broker_service.lease_seconds": 2,
    "bookie_service.lease_seconds": 2,
    "bookie.durability": "none",
}


class ClusterBroker:
    """The brokers of a cluster, of which `kill` takes one after the other, together with a bookie."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        kafka = {f"kafka.{name}": value for name, value in settings.items()}
        self._cluster = ClusterProcesses(
            directory, None, bookies=3, brokers=2, disk_bytes=0, settings={**SETTINGS, **kafka}
        )
        self._kills = 0
        self.bootstrap_servers = ""

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        self.bootstrap_servers = self._cluster.bootstrap_servers
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.__exit__()
        assert self._cluster.ended == [], "a process ended by itself"

    def kill(self) -> None:
        """SIGKILL to one broker and one bookie."""
        for role in ("broker", "bookie"):
            nodes = self._cluster.of(role)
            self._cluster.kill(nodes[self._kills % len(nodes)])
        self._kills += 1

    def start(self) -> None:
        """Starts again what was killed, and waits until it serves."""
        for node in self._cluster.of("broker", "bookie"):
            if not node.running:
                self._cluster.want(node)
        self._cluster.wait_until_all_serve()

    def restart_all(self) -> None:
        """Every bookie and every broker, one after the other: SIGTERM, and a new start."""
        for node in self._cluster.of("bookie", "broker"):
            self._cluster.stop(node)
            wait_until(lambda node=node: self._cluster.tick() or not node.serves, f"{node.name} ends")
            self._cluster.wait_until_all_serve()
