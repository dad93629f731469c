"""A whole cluster in processes of its own, for storms; a process that ends is restarted, as by a service manager.

`tick` does all the work and has to be called often. A process that ends by itself is reported in `ended`, unless it did
not reach the metadata at its start (`Exit.UNREACHABLE`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from gnomon.cli.exit import Exit
from gnomon.testing.storms.processes.cluster_node import EtcdNode, Node
from gnomon.testing.storms.processes.lan import Lan
from gnomon.testing.storms.processes.ledger_processes import wait_until

START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 40.0
RESTART_SECONDS: Final = 0.5
ROLES: Final = ("metadata", "bookie", "broker")
"""In the order of their start."""
SECTIONS: Final = {"metadata": "metadata_service", "bookie": "bookie_service", "broker": "broker"}


class ClusterProcesses:
    """One metadata service, bookies and brokers; as a context manager, the cluster ends with its block.

    Args:
        lan: gives each process a host of its own; with None all listen on the loopback.
        etcd: whether etcd stores the metadata, instead of gnomon's own service.
        disk_bytes: the size of each bookie's own disk; needs a `lan`.
        settings: settings of all processes, by gnomon's and Kafka's names.
    """

    def __init__(
        self,
        directory: Path,
        lan: Lan | None,
        *,
        bookies: int,
        brokers: int,
        disk_bytes: int,
        settings: Mapping[str, object],
        etcd: bool = False,
    ) -> None:
        self.directory = directory
        self.ended: list[str] = []
        """Reports of processes that ended by themselves, with the ends of their logs."""
        self.restarts = 0
        """The number of restarts of processes that ended because the metadata did not answer at their start."""
        self._lan = lan
        self._disk_bytes = disk_bytes
        self._settings = settings
        self._etcd = etcd
        self._wanted: dict[str, float] = {}
        """Nodes that have to run, by name, with the time of their start."""
        self._stopping: dict[str, float] = {}
        """Nodes that were asked to end, by name, with their deadline."""
        names = ["metadata", *(f"bookie-{n + 1}" for n in range(bookies)), *(f"broker-{n + 1}" for n in range(brokers))]
        self.nodes = {name: self._node(name) for name in names}

    def of(self, *roles: str) -> list[Node]:
        """The nodes of these roles."""
        return [node for node in self.nodes.values() if node.role in roles]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for Kafka clients."""
        return ",".join(node.ready["kafka"] for node in self.of("broker"))

    @property
    def native_addresses(self) -> str:
        """The addresses of all brokers, for native clients."""
        return ",".join(node.ready["native"] for node in self.of("broker"))

    def __enter__(self) -> Self:
        try:
            for role in ROLES:
                for node in self.of(role):
                    self.want(node)
                self.wait_until_all_serve()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()

    # --- the processes that have to run ---

    def serves(self, node: Node) -> bool:
        """Whether the node has reported that it serves, and was not asked to end since."""
        return node.serves and node.name not in self._stopping

    def want(self, node: Node, seconds: float = 0.0) -> None:
        """Makes `tick` start the node in `seconds` and restart it when it ends."""
        self._wanted[node.name] = time.monotonic() + seconds

    def kill(self, node: Node) -> None:
        """Sends SIGKILL; the node stays down until `want`."""
        self._wanted.pop(node.name, None)
        self._stopping.pop(node.name, None)
        node.kill()

    def stop(self, node: Node) -> None:
        """Sends SIGTERM; `tick` starts the node again once it has ended, and reports an end that is late or bad."""
        self._stopping[node.name] = time.monotonic() + STOP_SECONDS_MAX
        node.signal(signal.SIGTERM)

    def tick(self) -> None:
        """Starts the processes that have to run, and reports those that ended by themselves or not in time."""
        now = time.monotonic()
        for node in self.nodes.values():
            node.look()
            if not node.running and now >= self._wanted.get(node.name, float("inf")):
                if node.exit_code is not None and self._ended(node, node.exit_code):
                    continue
                node.command = self._command(node)
                node.start()
            elif node.running and now > self._stopping.get(node.name, float("inf")):
                self.ended.append(f"{node.name} did not end {STOP_SECONDS_MAX:g} s after SIGTERM")
                self.kill(node)
                self.want(node)

    def _ended(self, node: Node, code: int) -> bool:
        """Judges the end of a process; returns whether its next start has to wait."""
        asked, served, well = self._stopping.pop(node.name, None) is not None, node.serves, node.ended_well(code)
        node.kill()
        if asked and well:
            return False
        self.want(node, RESTART_SECONDS)
        if code == Exit.UNREACHABLE and not served:
            self.restarts += 1
        else:
            self.ended.append(f"{node.name} ended with {code}{' after SIGTERM' if asked else ''}:\n{node.last_words()}")
        return True

    def wait_until_all_serve(self, seconds: float = START_SECONDS_MAX) -> None:
        """Waits until every wanted process serves, by its ready line and its admin page.

        Raises:
            TimeoutError: a process does not serve in time.
        """

        def served() -> bool:
            self.tick()
            wanted = [node for node in self.nodes.values() if node.name in self._wanted]
            return all(map(self.serves, wanted)) and all(node.page("/readyz") for node in wanted)

        try:
            wait_until(served, "", seconds)
        except TimeoutError:
            states = {node.name: node.page("/readyz?verbose") or "silent" for node in self.nodes.values()}
            raise TimeoutError(f"not everything serves after {seconds:g} s: {states}") from None

    def stop_all(self) -> list[str]:
        """Sends SIGTERM to all, brokers first; returns reports of those that did not end well."""
        wrong = []
        for role in reversed(ROLES):
            nodes = self.of(role)
            for node in nodes:
                self._wanted.pop(node.name, None)
                node.signal(signal.SIGTERM)
            for node in nodes:
                code = node.wait(STOP_SECONDS_MAX)
                if code is None:
                    wrong.append(f"{node.name} did not end {STOP_SECONDS_MAX:g} s after SIGTERM")
                elif not node.ended_well(code):
                    wrong.append(f"{node.name} ended with {code} after SIGTERM:\n{node.last_words()}")
        return wrong

    # --- command lines ---

    def _node(self, name: str) -> Node:
        host, log = None if self._lan is None else self._lan.host(), self.directory / f"{name}.log"
        if self._etcd and name == "metadata":
            return EtcdNode(name, host, log, self.directory / name)
        node = Node(name, host, log)
        if node.role == "bookie":
            path = self.directory / name
            if host is not None:
                host.mount_disk(path, self._disk_bytes)
            node.data_file = path / "bookie" / "data.mdb"
        return node

    def _command(self, node: Node) -> list[object]:
        """The words of the command line, with the ports of the last start if there was one."""
        if isinstance(node, EtcdNode):
            return node.command
        section, (kafka, service, admin) = SECTIONS[node.role], self._ports(node)
        words: list[object] = [node.role, "--set", f"{section}.admin_host={node.address}", "--admin-port", admin]
        words += [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        if node.role != "metadata":
            words += ["--metadata", self.nodes["metadata"].ready["metadata"]]
        if node.role == "broker":
            words += ["--id", node.name.partition("-")[2], "--kafka-host", node.address, "--kafka-port", kafka]
            words += ["--data-dir", self.directory / node.name]
            return [*words, "--native-port", node.ready.get("native", ":0").rpartition(":")[2]]
        if node.role == "bookie":
            words += ["--name", node.name]
        return [*words, "--host", node.address, "--port", service, "--data-dir", self.directory / node.name]

    @staticmethod
    def _ports(node: Node) -> tuple[int, int, int]:
        """The ports for Kafka clients, for the cluster and for the admin server; 0 before the first start."""
        addresses = [node.ready.get(name, ":0") for name in ("kafka", node.role, "admin")]
        kafka, service, admin = (int(address.rpartition(":")[2]) for address in addresses)
        return kafka, service, admin
