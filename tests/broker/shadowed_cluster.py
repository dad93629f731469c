"""A cluster of brokers with a topic and its shadow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from gnomon.broker.replication.stats import ReplicationStats
from gnomon.broker.shadow.image import SourceImage
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.runtime.settings.settings import ShadowReplicationSettings
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import SimulatedConsumer, SimulatedProducer
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster

LEASE_SECONDS = 3.0


class Shadowed:
    """A cluster with the topic `orders` and its shadow `copy`, of one partition, on distinct brokers."""

    def __init__(self, simulation: Simulation, brokers: int, **settings: int) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        replication = ShadowReplicationSettings(**{"flush_seconds": 1.0, **settings})
        self.cluster = BrokerCluster(simulation, brokers, lease_seconds=LEASE_SECONDS, replication=replication)

    async def start(self, **configs: str) -> None:
        await self.cluster.start()

        async def cast(client: WireCluster) -> None:
            await create_topic(client, "orders", {"retention.ms": "-1", **configs})
            await create_topic(client, "copy", {SHADOW_SOURCE: "orders"})

        await self.cluster.run_client("admin", cast)
        await self.clock.sleep(0.1)
        assert self.owner != self.reader

    async def start_read(self, **configs: str) -> SourceImage:
        """Calls `start`, produces one record and opens the shadow; returns its image."""
        await self.start(**configs)
        await self.produce("first", 1)
        log = await self.shadow.opened()
        assert log is not None
        return log

    @property
    def owner(self) -> int:
        return self.cluster.leader("orders", 0)

    @property
    def reader(self) -> int:
        return self.cluster.leader("copy", 0)

    @property
    def shadow(self) -> ShadowPartition:
        broker = self.cluster.serving[self.reader].broker
        return broker.partitions.use_shadow(broker.topics.find("copy"), 0)

    def stats(self) -> ReplicationStats:
        broker = self.cluster.serving[self.owner].broker
        stats = broker.replication.stats(broker.topics.find("copy"), 0)
        assert stats is not None
        return stats

    def reads(self) -> int:
        """How often the shadow's broker has asked a bookie for entries."""
        return self.cluster.serving[self.reader].broker.storage.entries.reads

    async def produce(self, name: str, count: int, pause: float = 0.01, value_bytes: int = 0) -> list[float]:
        """Produces one record at a time; returns the seconds that each took."""
        took: list[float] = []

        async def work(client: WireCluster) -> None:
            producer = SimulatedProducer(client, "orders", {0: LogHistory()}, name=name)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.run)
                for number in range(count):
                    began = self.clock.monotonic()
                    producer.send(f"{name}/{number}/".encode().ljust(value_bytes, b"x"), 0)
                    await producer.flush()
                    took.append(self.clock.monotonic() - began)
                    await self.clock.sleep(pause)
                nursery.cancel_scope.cancel()

        await self.cluster.run_client(name, work)
        return took

    async def read_all(self, topic: str) -> list[tuple[int, bytes]]:
        async def work(client: WireCluster) -> list[tuple[int, bytes]]:
            return await SimulatedConsumer(client, topic, 0, LogHistory(), name=f"final {topic}").read_all()

        return await self.cluster.run_client(f"final-{topic}-{self.clock.monotonic()}", work)

    async def trickle(self, name: str, seconds: float) -> list[float]:
        """Produces a record every 10 ms; returns the seconds that each took."""
        return await self.produce(name, round(seconds * 100), pause=0.01)

    async def caught_up(self, end: int, seconds: float) -> None:
        """Waits until the shadow shows everything below `end` and has no backlog; fails after `seconds`."""
        log = await self.shadow.opened()
        assert log is not None
        until = self.clock.monotonic() + seconds
        while log.high_watermark < end or self.stats().backlog_entries:
            assert self.clock.monotonic() < until, f"the shadow is at {log.high_watermark}, {self.stats()}"
            await self.clock.sleep(0.005)


def run(seed: int, scenario: Callable[[Shadowed], Awaitable[None]], brokers: int = 2, **settings: int) -> None:
    simulate(seed, lambda simulation: scenario(Shadowed(simulation, brokers, **settings)))
