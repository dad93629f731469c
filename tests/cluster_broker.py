"""A cluster with the interface of `KafkaBroker`: two brokers, three bookies, the metadata."""

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
    """The brokers of a cluster; each `kill` kills the next broker and the next bookie."""

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

    @property
    def native_address(self) -> str:
        """The native ports of the brokers."""
        return ",".join(node.ready["native"] for node in self._cluster.of("broker"))

    @property
    def admin_addresses(self) -> list[str]:
        """The addresses of the brokers' metrics."""
        return [node.ready["admin"] for node in self._cluster.of("broker")]

    def kill(self) -> None:
        """Kills one broker and one bookie with SIGKILL."""
        for role in ("broker", "bookie"):
            nodes = self._cluster.of(role)
            self._cluster.kill(nodes[self._kills % len(nodes)])
        self._kills += 1

    def kill_brokers(self) -> None:
        """Kills both brokers with SIGKILL."""
        for node in self._cluster.of("broker"):
            self._cluster.kill(node)

    def kill_broker(self) -> None:
        """Kills the first broker with SIGKILL."""
        self._cluster.kill(self._cluster.of("broker")[0])

    def kill_bookie(self) -> None:
        """Kills the first bookie with SIGKILL."""
        self._cluster.kill(self._cluster.of("bookie")[0])

    def start(self) -> None:
        """Restarts the killed processes, and waits until they serve."""
        for node in self._cluster.of("broker", "bookie"):
            if not node.running:
                self._cluster.want(node)
        self._cluster.wait_until_all_serve()

    def restart_all(self) -> None:
        """Restarts every bookie and every broker with SIGTERM, one after the other."""
        for node in self._cluster.of("bookie", "broker"):
            self._cluster.stop(node)
            wait_until(lambda node=node: self._cluster.tick() or not node.serves, f"{node.name} ends")
            self._cluster.wait_until_all_serve()
