"""A cluster for tests: the metadata service, bookies and brokers as processes of this machine, on free ports.

Every call here blocks while processes start or stop, and needs no event loop.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.testing.fixture import Fixture
from gnomon.testing.kafka_broker import BROKER_PORTS, variables_of
from gnomon.testing.node_process import BrokerProcess, NodeProcess

COPIES = 3
"""Copies of each entry, if there are that many bookies; most of them are on disk before an acknowledgement."""
SETTINGS: Mapping[str, str | int | float | bool] = {
    "log.level": "warning",
    "broker_service.lease_seconds": 2.0,
    "bookie_service.lease_seconds": 2.0,
}
"""Others take over from a dead member after two seconds, so that a test need not wait for six."""


class KafkaCluster(Fixture):
    """Several brokers on the same bookies, in processes that end with this one.

    Args:
        brokers: the number of brokers.
        bookies: the number of bookies; each entry has up to three copies.
        data_dir: the data of all processes; None is a temporary directory that `close` removes.
        durability: as for `KafkaBroker`.
        settings: as for `KafkaBroker`; all processes get them.
        command: as for `KafkaBroker`.

    Use it as a context manager, or call `start` and `close`. A member is a `NodeProcess`: `cluster.brokers[0].kill()`,
    `cluster.bookies[1].pause()`, `cluster.metadata.stop()`; each `start` brings it back with its address and data.
    """

    def __init__(
        self,
        *,
        brokers: int = 2,
        bookies: int = 3,
        data_dir: str | os.PathLike[str] | None = None,
        durability: str = "none",
        settings: Mapping[str, str | int | float | bool] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        if brokers < 1 or bookies < 1:
            raise ValueError(f"a cluster has at least one broker and one bookie, not {brokers} and {bookies}")
        self._directory = Path(tempfile.mkdtemp(prefix="gnomon-"))
        self.data_dir = self._directory / "data" if data_dir is None else Path(data_dir)
        self._variables = variables_of({**SETTINGS, "bookie.durability": durability, **(settings or {})})
        self._command = command
        self._sizes = brokers, bookies
        self.metadata = self._node("metadata", {"--port": "metadata", "--admin-port": "admin"}, "metadata")
        """The metadata service."""
        self.bookies: list[NodeProcess] = []
        """The bookies, from the first start on."""
        self.brokers: list[BrokerProcess] = []
        """The brokers, with the ids 1, 2 …, from the first start on."""

    def _node(self, name: str, ports: Mapping[str, str], *words: object) -> NodeProcess:
        stored = ("--data-dir", self.data_dir / name)
        return NodeProcess((*words, *stored), ports, self._directory / f"{name}.log", self._variables, self._command)

    @property
    def members(self) -> list[NodeProcess]:
        """The metadata service, the bookies and the brokers."""
        return [self.metadata, *self.bookies, *self.brokers]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of all brokers, for Kafka clients."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def native_address(self) -> str:
        """`host:port,…` of all brokers, for `gnomon.connect`."""
        return ",".join(broker.native_address for broker in self.brokers)

    @property
    def metadata_address(self) -> str:
        """`host:port` of the metadata service, for `gnomon.connect_ledgers`."""
        return self.metadata.addresses["metadata"]

    def start(self) -> None:
        """Starts the members that do not run, and returns once all of them serve.

        Raises:
            BrokerNotStarted: with the output of the process that did not.
        """
        _start([self.metadata])
        if not self.brokers:
            self._add_members()
        _start(self.bookies)
        _start(self.brokers)

    def _add_members(self) -> None:
        brokers, bookies = self._sizes
        known = ("--metadata", self.metadata_address)
        for number in range(1, bookies + 1):
            name = f"bookie-{number}"
            ports = {"--port": "bookie", "--admin-port": "admin"}
            self.bookies.append(self._node(name, ports, "bookie", "--name", name, *known))
        copies = min(bookies, COPIES)
        quorum = {"ensemble_size": copies, "write_quorum": copies, "ack_quorum": copies // 2 + 1}
        variables = variables_of({f"broker_service.{name}": count for name, count in quorum.items()}) | self._variables
        for number in range(1, brokers + 1):
            log = self._directory / f"broker-{number}.log"
            words = ("broker", "--id", number, *known)
            self.brokers.append(BrokerProcess(words, BROKER_PORTS, log, variables, self._command))

    def stop(self) -> None:
        """Stops all members in good order: the brokers first, the metadata service last."""
        for member in reversed(self.members):
            member.stop()

    def close(self) -> None:
        """Kills all members, and removes the temporary directory."""
        for member in self.members:
            member.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


def _start(members: Sequence[NodeProcess]) -> None:
    """Starts those members that do not run, all at once."""
    missing = [member for member in members if not member.running]
    for member in missing:
        member.spawn()
    for member in missing:
        member.wait_ready()
