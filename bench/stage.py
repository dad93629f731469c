"""The environment of a scenario: one system, a server of it, the generators, and the length of the measurement."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from confluent_kafka.admin import AdminClient, NewTopic

from bench.frame import produce_frame, record_batch
from bench.generator import Figures, Generator, GeneratorFailed, Generators
from bench.system import Installation, Server, System
from bench.workspace import Workspace

GRACE_SECONDS = 60
"""Time beyond its measurement that a generator may take to connect, drain and report."""
READY_SECONDS = 180
ADMIN_SECONDS = 180
ANY_BROKER = -1
UNTIL_ENOUGH = 10**12
PLAIN, IDEMPOTENT = "false", "true"
"""Whether librdkafka's producer is idempotent."""
FILL_BATCH_BYTES = 64 << 10
FILL_SECONDS_MAX = 300
SEED_SECONDS_MAX = 180
CPU_GRAIN_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Scale:
    """The amounts of a run."""

    seconds: float = 2.5
    partitions: int = 5_000
    """Partitions of the node that restarts."""
    ledgers: int = 1_000
    """Open ledgers that a broker leaves behind."""
    table_keys: int = 1_000_000
    """Keys of a table that is loaded again."""
    large_table_keys: int = 10_000_000
    """Keys of a table that is larger than the memory."""
    ledger_bytes: int = 1 << 30
    """Size of a ledger that is open when its broker dies; a quarter of it for repair."""

    @property
    def warmup_seconds(self) -> float:
        return self.seconds / 5


class CpuCost:
    """Processor seconds a server spent within a block; known when the block has ended."""

    seconds = 0.0


def throughput(figures: Figures, cost: CpuCost) -> dict[str, float]:
    """Rates, and processor time per operation on both sides; `total` counts a generator's warm-up too."""
    operations, seconds = figures["operations"], figures["seconds"]
    if operations <= 0 or seconds <= 0:
        raise GeneratorFailed("nothing was answered after the warm-up: measure for longer")
    total = figures.get("total", operations)
    derived = {
        "rate": operations / seconds,
        "megabytes_per_s": figures.get("bytes", 0.0) / seconds / 1e6,
        "generator_cpu_us": figures["generator_cpu_s"] / total * 1e6,
        "broker_cpu_us": cost.seconds / total * 1e6,
        "per_cpu_second": total / max(cost.seconds, CPU_GRAIN_SECONDS),
    }
    return {**figures, **derived}


@dataclass(slots=True)
class Stage:
    """The surroundings of a scenario. `kept` holds installations that a scenario uses again in its next round."""

    system: System
    workspace: Workspace
    generators: Generators
    scale: Scale
    kept: dict[str, Installation] = field(default_factory=dict)
    _server: Server | None = None
    _names: Iterator[int] = field(default_factory=itertools.count)

    @property
    def server(self) -> Server:
        assert self._server is not None, "a scenario asks for a server outside `serving`"
        return self._server

    @property
    def native_port(self) -> int:
        """The port of gnomon's own protocol."""
        return int(self.server.process.ready()["native"].rpartition(":")[2])

    @property
    def served(self) -> bool:
        return self._server is not None and self._server.process.alive

    @contextmanager
    def serving(self, installation: Installation) -> Iterator[Server]:
        """A started server of the installation for the block; killed at its end, however it ends."""
        server = installation.start()
        self._server = server
        try:
            yield server
        finally:
            self._server = None
            server.kill()

    def raw(self, *arguments: object, timeout_seconds: float = GRACE_SECONDS) -> Figures:
        return self._generate(self.generators.raw, arguments, timeout_seconds)

    def rdkafka(self, *arguments: object, timeout_seconds: float = GRACE_SECONDS) -> Figures:
        return self._generate(self.generators.rdkafka, arguments, timeout_seconds)

    def _generate(self, generator: Generator, arguments: tuple[object, ...], timeout_seconds: float) -> Figures:
        process = self.server.process
        try:
            return generator.run(
                *arguments,
                timeout_seconds=timeout_seconds + self.scale.seconds * 4,
                server_alive=lambda: process.alive,
            )
        except GeneratorFailed as failure:
            if process.alive:
                raise
            raise GeneratorFailed(f"{failure}; the server's last words: {process.log_tail()}") from None

    def frame(self, topic: str, records: int, value_bytes: int) -> Path:
        """A file with one pre-built Produce request."""
        path = self.workspace.scratch / f"{topic}.frame"
        path.write_bytes(produce_frame(topic, record_batch(records, value_bytes)))
        return path

    def await_leaders(
        self, topic: str, partitions: int = 1, first_produce: Path | None = None, leader: int = ANY_BROKER
    ) -> Figures:
        """Waits until the server answers, reports `leader` as the leader of all partitions, and has acknowledged the
        frame.

        Returns:
            the time of each, in monotonic seconds.
        """
        times = (partitions, READY_SECONDS * 1000)
        arguments = ("start", self.server.port, topic, *times, first_produce or "-", leader)
        return self.raw(*arguments, timeout_seconds=READY_SECONDS)

    def topic(self, partitions: int = 1, name: str = "", config: Mapping[str, str] = MappingProxyType({})) -> str:
        """A new, empty topic of this server, ready for use; its name, which is invented if none is given."""
        name = name or f"bench-{next(self._names)}"
        if not self.system.only_produces:
            admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
            settings = {**self.system.topic_config, **config}
            new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=settings)
            for created in admin.create_topics([new], request_timeout=ADMIN_SECONDS).values():
                created.result()
        self.await_leaders(name, partitions)
        return name

    def fill(
        self,
        topic: str,
        value_bytes: int,
        seconds: float = FILL_SECONDS_MAX,
        records: int = UNTIL_ENOUGH,
        idempotent: str = PLAIN,
    ) -> int:
        """Produces for that long, or `records` records, in batches of 64 KiB; returns the number of records in the
        topic."""
        arguments = (topic, value_bytes, FILL_BATCH_BYTES, 0, int(seconds * 1e3), records, idempotent)
        filled = self.rdkafka("produce", self.server.bootstrap, *arguments, timeout_seconds=seconds + GRACE_SECONDS)
        return int(filled["total"])

    def seed(self, topic: str, partitions: int) -> Figures:
        """Writes one record into each partition."""
        arguments = (topic, partitions, SEED_SECONDS_MAX * 1000)
        return self.rdkafka("seed", self.server.bootstrap, *arguments, timeout_seconds=SEED_SECONDS_MAX + GRACE_SECONDS)

    def discard(self) -> None:
        """Removes the data of servers that are gone, except what is kept."""
        keep = {installation.data_dir for installation in self.kept.values()}
        for data_dir in self.workspace.scratch.glob(f"{self.system.name}-*/"):
            if data_dir not in keep:
                shutil.rmtree(data_dir)

    @contextmanager
    def cpu_cost(self) -> Iterator[CpuCost]:
        process = self.server.process
        cost, before = CpuCost(), process.cpu_seconds()
        yield cost
        if process.alive:
            cost.seconds = process.cpu_seconds() - before
