"""A storm of kills over a cluster and the stages of Spark that use it: SIGKILL at moments drawn from a seed.

`tick` kills a process if one is due; `heal` ends the storm. Others look after the processes.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gnomon.testing.storms.drivers.spark_stage import SparkStage
from gnomon.testing.storms.processes.cluster_processes import ClusterProcesses

GAP_SECONDS: Final = (0.2, 4.0)
"""The time between two kills."""
AGAIN_SECONDS: Final = 0.1
"""The time until the next draw where the drawn process does not run."""
AWAY_SECONDS: Final = ((0.0, 0.0), (0.2, 2.0), (3.0, 6.0))
"""Pauses before a restart, each range equally likely; leases of 2 s outlive the first two."""


@dataclass(frozen=True, slots=True)
class KillKind:
    """A kind of kill."""

    name: str
    weight: int
    kill: Callable[[KillStorm, float, float], str]
    """Kills one of the processes of the kind, which a number from 0 to 1 chooses, with the pause before its restart;
    returns the name of the process, or nothing if there is none."""


class KillStorm:
    """Kills processes of a cluster and of stages.

    Args:
        seed: draws kinds, processes, moments and pauses. The same seed draws the same ones.
    """

    def __init__(self, cluster: ClusterProcesses, stages: Sequence[SparkStage], seed: int) -> None:
        self.kills: list[tuple[float, str]] = []
        """The time and a text of each kill."""
        self.counts: Counter[str] = Counter()
        """The number of kills by kind."""
        self._cluster, self._stages = cluster, stages
        self._random = random.Random(f"{seed}/kills")
        self._next_at = 0.0

    def tick(self) -> None:
        """Kills a process if one is due."""
        now = time.monotonic()
        if now < self._next_at:
            return
        (kind,) = self._random.choices(KINDS, [kind.weight for kind in KINDS])
        which, seconds = self._random.random(), self._random.uniform(*self._random.choice(AWAY_SECONDS))
        name = kind.kill(self, which, seconds)
        self._next_at = now + (self._random.uniform(*GAP_SECONDS) if name else AGAIN_SECONDS)
        if name:
            self.kills.append((now, f"{kind.name} of {name}, {seconds:.1f} s"))
            self.counts[kind.name] += 1

    def heal(self) -> None:
        """Has every process of the cluster run again, without a pause."""
        for node in self._cluster.of("bookie", "broker"):
            if not node.running:
                self._cluster.want(node)

    # --- the kinds ---

    def _of_stage(self, which: float, kill: Callable[[SparkStage], bool]) -> str:
        stage = self._stages[int(which * len(self._stages))]
        return stage.name if kill(stage) else ""

    def driver(self, which: float, seconds: float) -> str:
        """Kills the Python process and the JVM of a driver."""
        return self._of_stage(which, lambda stage: stage.kill(seconds))

    def python(self, which: float, seconds: float) -> str:
        """Kills the Python process of a driver."""
        return self._of_stage(which, lambda stage: stage.kill_python(seconds))

    def jvm(self, which: float, seconds: float) -> str:
        """Kills the JVM of a driver."""
        return self._of_stage(which, lambda stage: stage.kill_jvm(seconds))

    def worker(self, which: float, seconds: float) -> str:
        """Kills a Python process that a JVM has started."""
        return self._of_stage(which, lambda stage: stage.kill_worker(which * len(self._stages) % 1))

    def broker(self, which: float, seconds: float) -> str:
        """Kills a broker."""
        return self._node("broker", which, seconds)

    def bookie(self, which: float, seconds: float) -> str:
        """Kills a bookie."""
        return self._node("bookie", which, seconds)

    def _node(self, role: str, which: float, seconds: float) -> str:
        nodes = self._cluster.of(role)
        node = nodes[int(which * len(nodes))]
        if not self._cluster.serves(node):
            return ""
        self._cluster.kill(node)
        self._cluster.want(node, seconds)
        return node.name


KINDS: Final = (
    KillKind("driver", 3, KillStorm.driver),
    KillKind("driver's Python", 1, KillStorm.python),
    KillKind("driver's JVM", 1, KillStorm.jvm),
    KillKind("worker", 5, KillStorm.worker),
    KillKind("broker", 4, KillStorm.broker),
    KillKind("bookie", 3, KillStorm.bookie),
)
