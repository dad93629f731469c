"""A storm over a cluster of real processes: faults drawn from a seed, one or two at a time, each undone after a while.

`tick` begins and ends what is due and looks after the processes; `heal` ends all of it.
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

from gnomon.testing.cluster_node import Node
from gnomon.testing.cluster_processes import ClusterProcesses
from gnomon.testing.lan import Lan

AT_ONCE_MAX: Final = 2
PAUSE_SECONDS: Final = (0.5, 5.0)
"""Between the begin of one fault and that of the next."""
AWAY_SECONDS: Final = ((0.0, 0.5), (0.5, 4.0), (6.0, 15.0))
"""How long a fault takes: one of these, each as likely; leases of 6 s outlive the first two."""
FULL_SECONDS: Final = (12.0, 25.0)
"""A store has taken up to 16 MiB of disk ahead, and only then notices."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of fault."""

    name: str
    weight: int
    roles: dict[str, int]
    """Whom it may hit, and how often."""
    begin: Callable[[ProcessStorm, Node, Node], Callable[[], None]]
    """Does it to the first node, where it needs two against the second; returns what undoes it."""
    of_links: bool = False


@dataclass(slots=True)
class Fault:
    """One that happens, or has: monotonic seconds."""

    kind: Kind
    text: str
    nodes: list[Node]
    since: float
    until: float
    undo: Callable[[], None]
    over: bool = False


class ProcessStorm:
    """What happens to a cluster, and when.

    Args:
        lan: what the cluster is on; None leaves out the faults of links, and files are limited instead of disks filled.
    """

    def __init__(self, cluster: ClusterProcesses, lan: Lan | None, seed: int) -> None:
        self.cluster = cluster
        self.faults: list[Fault] = []
        """All there were, in order."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """By kind and role."""
        self.disks_noticed = 0
        """Full disks that their bookies spoke of, before they were freed."""
        self._lan = lan
        self._random = random.Random(seed)
        self._active: list[Fault] = []
        self._next_at = time.monotonic() + self._random.uniform(*PAUSE_SECONDS)

    def tick(self) -> None:
        """Does what is due."""
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
        """Ends every fault, and waits until all of the cluster serves.

        Raises:
            TimeoutError: it does not.
        """
        for fault in self._active:
            if not fault.over:
                self._end(fault)
        self._active = []
        self.cluster.wait_until_all_serve()

    def leave_disks_alone(self) -> None:
        """Starts every broker anew, without what it had in memory, and kills one bookie: the others must have it all.

        Raises:
            TimeoutError: the brokers do not serve.
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
        fault = Fault(kind, text, nodes, now, now + (0 if kind is STOP else seconds), undo)
        self._active.append(fault)
        self.faults.append(fault)
        self.counts[kind.name, role] += 1

    def _end(self, fault: Fault) -> None:
        fault.undo()
        fault.over = True

    # --- the kinds ---

    def kill(self, node: Node, _: Node) -> Callable[[], None]:
        """SIGKILL, and a start later."""
        self.cluster.kill(node)
        return lambda: self.cluster.want(node)

    def kill_all(self, node: Node, _: Node) -> Callable[[], None]:
        """SIGKILL to all of a role at once, and a start later."""
        nodes = self.cluster.of(node.role)
        for each in nodes:
            self.cluster.kill(each)

        def undo() -> None:
            for each in nodes:
                self.cluster.want(each)

        return undo

    def stop(self, node: Node, _: Node) -> Callable[[], None]:
        """SIGTERM, and a start as soon as it has ended."""
        self.cluster.stop(node)
        return lambda: None

    def pause(self, node: Node, _: Node) -> Callable[[], None]:
        """SIGSTOP, SIGCONT."""
        node.signal(signal.SIGSTOP)
        return lambda: node.signal(signal.SIGCONT)

    def fill_disk(self, node: Node, _: Node) -> Callable[[], None]:
        """Nothing is free on its disk."""
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
        """It is cut off from everybody, clients too."""
        assert node.host is not None
        node.host.unplug()
        return node.host.plug

    def cut(self, node: Node, other: Node) -> Callable[[], None]:
        """The two do not hear of each other."""
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
        """What the first sends does not reach the second."""
        assert node.host is not None
        there = node.host
        there.cut(other.address)
        return lambda: there.join(other.address)


EVERYBODY: Final = {"metadata": 1, "bookie": 3, "broker": 3}
UNPLUG: Final = Kind("unplug", 3, EVERYBODY, ProcessStorm.unplug, of_links=True)
FULL_DISK: Final = Kind("full disk", 2, {"bookie": 1}, ProcessStorm.fill_disk)
KILL_ALL: Final = Kind("kill -9 all", 1, {"bookie": 1, "broker": 1}, ProcessStorm.kill_all)
STOP: Final = Kind("SIGTERM", 3, EVERYBODY, ProcessStorm.stop)
CUT: Final = Kind("cut", 2, EVERYBODY, ProcessStorm.cut, of_links=True)
CUT_ONE_WAY: Final = Kind("cut one way", 2, EVERYBODY, ProcessStorm.cut_one_way, of_links=True)
KINDS: Final = (
    Kind("kill -9", 5, EVERYBODY, ProcessStorm.kill),
    KILL_ALL,
    STOP,
    Kind("SIGSTOP", 4, EVERYBODY, ProcessStorm.pause),
    FULL_DISK,
    UNPLUG,
    CUT,
    CUT_ONE_WAY,
)
