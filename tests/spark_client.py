"""A cluster with topics that the engine of `gnomon.spark` reads, without a JVM."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from gnomon.client.kafka.admin import delete_records, delete_topic, ensure_topic
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.log.plans.planned_bookies import PlannedBookies, planned_bookies
from gnomon.spark.columns import SCHEMA
from gnomon.spark.options import SourceOptions
from gnomon.spark.planning import plan
from gnomon.spark.reading import batches_of, decoded
from gnomon.spark.task import Task, decode_task, encode_task
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gnomon.wire.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from gnomon.wire.kafka.records import Record, build_batch

START_MS = 1_000_000
SIZES = {"orders": (30, 20, 0), "others": (5,)}
"""Records of each partition of each topic, in batches of five; record n has the timestamp START_MS + n."""
EVERYTHING = [(0, offset) for offset in range(30)] + [(1, offset) for offset in range(20)]


class SparkClient:
    """Reads of a cluster with the topics of SIZES."""

    def __init__(
        self, cluster: KafkaBrokers, bookies: PlannedBookies, machines: BrokerCluster, warnings: list[str]
    ) -> None:
        self.cluster, self.bookies, self.machines = cluster, bookies, machines
        self.warnings = warnings

    def options(self, *, streaming: bool = False, **given: str) -> SourceOptions:
        options = {"kafka.bootstrap.servers": "broker-1:9092", **given}
        if not {"subscribe", "subscribePattern", "assign"} & given.keys():
            options["subscribe"] = "orders"
        return SourceOptions.parse({name.lower(): value for name, value in options.items()}, streaming=streaming)

    async def tasks(self, columns: Sequence[str] = SCHEMA.names, **given: str) -> list[Task]:
        return await plan(self.cluster, self.options(**given), columns, self.warnings.append)

    async def rows(self, **given: str) -> list[dict[str, Any]]:
        found = []
        for task in await self.tasks(**given):
            found += await self.rows_of(task)
        return found

    async def rows_of(self, task: Task) -> list[dict[str, Any]]:
        sent = decode_task(encode_task(task))
        async with aclosing(batches_of(self.cluster, self.bookies, sent, self.warnings.append)) as parts:
            batches = [part async for part in parts]
        return [row for rows in decoded(sent, batches) for row in rows.to_pylist()]

    async def places(self, **given: str) -> list[tuple[int, int]]:
        return [(row["partition"], row["offset"]) for row in await self.rows(**given)]

    async def delete_before(self, partition: int, offset: int, topic: str = "orders") -> None:
        await delete_records(self.cluster, topic, {partition: offset})

    async def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        await ensure_topic(self.cluster, topic, partitions, configs or {})

    async def grow(self, topic: str, partitions: int) -> None:
        grown = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
        broker = await self.cluster.any_broker()
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=9_000)
        await broker.request(request, 1, CreatePartitionsResponse)
        self.cluster.forget(topic)

    async def delete(self, topic: str) -> None:
        await delete_topic(self.cluster, topic)
        self.cluster.forget(topic)

    async def fill(self) -> None:
        for topic, sizes in SIZES.items():
            await self.create(topic, len(sizes))
            for partition, size in enumerate(sizes):
                for first in range(0, size, 5):
                    await self.produce(topic, partition, first)

    async def produce(self, topic: str, partition: int, first: int) -> None:
        records = [Record(at, at, b"%d" % (first + at), topic.encode(), (("n", None),)) for at in range(5)]
        batch = build_batch(records, base_timestamp=START_MS + first)
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        leader = await self.cluster.leader(topic, partition)
        await leader.request(ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=data), 9, ProduceResponse)


def with_topics(work: Callable[[SparkClient], Awaitable[None]], kafka: Mapping[str, str] | None = None) -> None:
    async def scenario(simulation: Simulation) -> None:
        brokers = BrokerCluster(simulation, 2, kafka=kafka)
        await brokers.start()

        async def client(wire: WireCluster) -> None:
            warnings: list[str] = []
            async with (
                KafkaBrokers(wire.world, brokers.bootstrap, patience_seconds=20) as cluster,
                planned_bookies(wire.world, warnings.append) as bookies,
            ):
                reader = SparkClient(cluster, bookies, brokers, warnings)
                await reader.fill()
                await work(reader)

        await brokers.run_client("client", client)

    simulate(1, scenario)
