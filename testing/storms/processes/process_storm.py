"""A storm over a cluster of real processes: faults drawn from a seed, at most two at a time, each undone later.

`tick` begins and ends the faults that are due and looks after the processes; `heal` ends all faults.
"""

from __future__ import annotations

import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gnomon.testing.storms.processes.cluster_node import Node
from gnomon.testing.storms.processes.cluster_processes import ClusterProcesses
from gnomon.testing.storms.processes.lan import Lan

AT_ONCE_MAX: Final = 2
PAUSE_SECONDS: Final = (0.5, 5.0)
"""The time between the start of one fault and that of the next."""
AWAY_SECONDS: Final = ((0.0, 0.5), (0.5, 4.0), (6.0, 15.0))
"""Durations of a fault, each range equally likely; leases of 6 s outlive the first two."""
FULL_SECONDS: Final = (12.0, 25.0)
"""Longer than other faults: a store allocates up to 16 MiB ahead, and notices a full disk only after that."""


@dataclass(frozen=True, slots=True)
class ProcessKind:
    """A kind of fault."""

    name: str
    weight: int
    roles: dict[str, int]
    """The roles that it may hit, with their weights."""
    begin: Callable[[ProcessStorm, Node, Node], Callable[[], None]]
    """Begins the fault at the first node, for a cut also at the second; returns the function that undoes it."""
    of_links: bool = False


@dataclass(slots=True)
class ProcessFault:
    """A present or past fault; times in monotonic seconds."""

    kind: ProcessKind
    text: str
    nodes: list[Node]
    since: float
    until: float
    undo: Callable[[], None]
    over: bool = False


class ProcessStorm:
    """Injects faults into a cluster.

    Args:
        lan: the network of the cluster. With None there are no faults of links, and file sizes are limited instead of
            disks filled.
    """

    def __init__(self, cluster: ClusterProcesses, lan: Lan | None, seed: int) -> None:
        self.cluster = cluster
        self.faults: list[ProcessFault] = []
        """All faults so far, in order."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """The number of faults by kind and role."""
        self.disks_noticed = 0
        """The number of full disks that their bookies reported before the disks were freed."""
        self._lan = lan
        self._random = random.Random(seed)
        self._active: list[ProcessFault] = []
        self._next_at = time.monotonic() + self._random.uniform(*PAUSE_SECONDS)

    def tick(self) -> None:
        """Begins and ends the faults that are due."""
        now = time.monotonic()
        self.cluster.tick()
        for fault in list(self._active):
            if now >= fault.until and not fault.over:
                self._end(fault)
            if fault.over and all(map(self.cluster.serves, fault.nodes)):
                fault.until = now
                self._active.remove(fault)
        if now >= self._next_at and len(self._active) < AT_ONCE_MAX:
            self._next_at = now + self._random.uniform(*PAUSE_SECONDS)
            self._begin(now)

    def heal(self) -> None:
        """Ends every fault, and waits until the whole cluster serves.

        Raises:
            TimeoutError: the cluster does not serve in time.
        """
        for fault in self._active:
            if not fault.over:
                self._end(fault)
        self._active = []
        self.cluster.wait_until_all_serve()

    def leave_disks_alone(self) -> None:
        """Restarts every broker, so that its memory is lost, and kills one bookie: the other disks must have all data.

        Raises:
            TimeoutError: the brokers do not serve in time.
        """
        brokers = self.cluster.of("broker")
        for node in [*brokers, self._random.choice(self.cluster.of("bookie"))]:
            self.cluster.kill(node)
        for node in brokers:
            self.cluster.want(node)
        self.cluster.wait_until_all_serve()

    def _begin(self, now: float) -> None:
        kinds = [kind for kind in KINDS if self._lan is not None or not kind.of_links]
        kind = self._random.choices(kinds, [kind.weight for kind in kinds])[0]
        (role,) = self._random.choices(list(kind.roles), list(kind.roles.values()))
        length = FULL_SECONDS if kind is FULL_DISK else self._random.choice(AWAY_SECONDS)
        seconds = self._random.uniform(*length)
        node = self._random.choice(self.cluster.of(role))
        other = self._random.choice([other for other in self.cluster.nodes.values() if other.role != role])
        hit = [node, other] if kind in (CUT, CUT_ONE_WAY) else [node]
        busy = [node for fault in self._active for node in fault.nodes]
        if not self.cluster.serves(node) or any(node in busy for node in hit):
            return
        undo = kind.begin(self, node, other)
        text = " ".join([kind.name, *(node.name for node in hit)]) + ("" if kind is STOP else f" {seconds:.1f} s")
        nodes = self.cluster.of(role) if kind is KILL_ALL else hit
        fault = ProcessFault(kind, text, nodes, now, now + (0 if kind is STOP else seconds), undo)
        self._active.append(fault)
        self.faults.append(fault)
        self.counts[kind.name, role] += 1

    def _end(self, fault: ProcessFault) -> None:
        fault.undo()
        fault.over = True

    # --- the kinds ---

    def kill(self, node: Node, _: Node) -> Callable[[], None]:
        """Sends SIGKILL; the undo starts the process."""
        self.cluster.kill(node)
        return lambda: self.cluster.want(node)

    def kill_all(self, node: Node, _: Node) -> Callable[[], None]:
        """Sends SIGKILL to all processes of a role at once; the undo starts them."""
        nodes = self.cluster.of(node.role)
        for each in nodes:
            self.cluster.kill(each)

        def undo() -> None:
            for each in nodes:
                self.cluster.want(each)

        return undo

    def stop(self, node: Node, _: Node) -> Callable[[], None]:
        """Sends SIGTERM; the process starts again as soon as it has ended."""
        self.cluster.stop(node)
        return lambda: None

    def pause(self, node: Node, _: Node) -> Callable[[], None]:
        """Sends SIGSTOP; the undo sends SIGCONT."""
        node.signal(signal.SIGSTOP)
        return lambda: node.signal(signal.SIGCONT)

    def fill_disk(self, node: Node, _: Node) -> Callable[[], None]:
        """Fills the disk of the node."""
        if node.host is not None:
            node.host.fill_disk()
        else:
            assert node.data_file is not None
            node.limit_files(node.data_file.stat().st_size)

        def undo() -> None:
            self.disks_noticed += "\ngnomon_bookie_read_only 1" in node.page("/metrics")
            if node.host is not None:
                node.host.free_disk()
            else:
                node.limit_files(resource.RLIM_INFINITY)

        return undo

    def unplug(self, node: Node, _: Node) -> Callable[[], None]:
        """Cuts the node off from all others, clients included."""
        assert node.host is not None
        node.host.unplug()
        return node.host.plug

    def cut(self, node: Node, other: Node) -> Callable[[], None]:
        """Cuts the link between two nodes in both directions."""
        assert node.host is not None
        assert other.host is not None
        there, back = node.host, other.host
        there.cut(back.address)
        back.cut(there.address)

        def undo() -> None:
            there.join(back.address)
            back.join(there.address)

        return undo

    def cut_one_way(self, node: Node, other: Node) -> Callable[[], None]:
        """Drops the packets from the first node to the second."""
        assert node.host is not None
        there = node.host
        there.cut(other.address)
        return lambda: there.join(other.address)


EVERYBODY: Final = {"metadata": 1, "bookie": 3, "broker": 3}
UNPLUG: Final = ProcessKind("unplug", 3, EVERYBODY, ProcessStorm.unplug, of_links=True)
FULL_DISK: Final = ProcessKind("full disk", 2, {"bookie": 1}, ProcessStorm.fill_disk)
KILL_ALL: Final = ProcessKind("kill -9 all", 1, {"bookie": 1, "broker": 1}, ProcessStorm.kill_all)
STOP: Final = ProcessKind("SIGTERM", 3, EVERYBODY, ProcessStorm.stop)
CUT: Final = ProcessKind("cut", 2, EVERYBODY, ProcessStorm.cut, of_links=True)
CUT_ONE_WAY: Final = ProcessKind("cut one way", 2, EVERYBODY, ProcessStorm.cut_one_way, of_links=True)
KINDS: Final = (
    ProcessKind("kill -9", 5, EVERYBODY, ProcessStorm.kill),
    KILL_ALL,
    STOP,
    ProcessKind("SIGSTOP", 4, EVERYBODY, ProcessStorm.pause),
    FULL_DISK,
    UNPLUG,
    CUT,
    CUT_ONE_WAY,
)
