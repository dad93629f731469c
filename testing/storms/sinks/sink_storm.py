"""Drivers of a sink in a storm: they stage, propose, decide and apply, and die at any step.

    taken = partial(write_rows, name="taken", queries=("a", "b"))
    scenario = LogScenario(..., beside={"sink": write_rows, "taken": taken})

1. Several drivers work on one checkpoint at the same time, as after a Spark driver that was thought dead.
2. A task may have several attempts; the driver gets the message of one of them.
3. Two queries take the writer from each other, again and again; or the writer belongs to the one that came first.
4. Meanwhile the target and a shadow of it are read, as a Spark job reads: `written_rows` judges what the job sees.
5. When all is over, one driver recovers the writer, and `written_rows` judges the target and its shadow, as Kafka
   clients, a Spark job and a subscription read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from random import Random
from typing import Final

import pyarrow as pa
import trio

from gnomon.client.client import connect
from gnomon.client.errors import NativeError
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.log.plans.planned_bookies import PlannedBookies, planned_bookies
from gnomon.runtime.world import Unreachable
from gnomon.spark.writing.committing import SinkDriver, StagingLost, WriterFenced
from gnomon.spark.writing.delivery import DeliveryFailed
from gnomon.spark.writing.row_encoder import RowEncoder
from gnomon.spark.writing.staging import StagedTask, TaskStaging
from gnomon.spark.writing.target import RowRefused
from gnomon.spark.writing.writer_topic import WriterTopic
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT
from gnomon.testing.storms.kafka.log_clients import ProduceRefused
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.shadows.shadow_clients import cast_shadow
from gnomon.testing.storms.sinks.row_readers import fetched_rows, planned_rows, source_options, subscribed_rows
from gnomon.testing.storms.sinks.written_rows import (
    PARTITIONS,
    findings,
    findings_meanwhile,
    partition_of,
    rows_of_tasks,
)
from gnomon.wire.kafka.compression import Codec

KAFKA_PORT: Final = 9092
DRIVERS_MAX: Final = 3
LIFE_SECONDS_MEAN: Final = 1.5
PAUSE_SECONDS_MEAN: Final = 0.3
COMMIT_SECONDS_MAX: Final = (inf, inf, inf, inf, 0.5, 0.1)
"""Times that a driver has for a commit, before it dies."""
PATIENCE_SECONDS: Final = 5.0
STAGING_PARTITIONS: Final = 2
LOOK_SECONDS_MEAN: Final = 2.0
RETRY_SECONDS: Final = 1.0
FAILURES: Final = (RequestRefused, Unreachable, DeliveryFailed, StagingLost, RowRefused)
"""Spark runs the batch again. A row is refused while a broker does not know its topic yet."""


async def write_rows(
    cluster: WireCluster,
    seconds: float,
    *,
    name: str = "sink",
    queries: Sequence[str] = ("only",),
    takes_over: bool = True,
) -> None:
    """Writes rows to a topic of this name for the duration of the storm, and judges it; raises ProduceRefused.

    Args:
        queries: those that share the writer; their names are in no other writer.
        takes_over: whether several queries take the writer from each other.
    """
    await create_topic(cluster, name, {}, PARTITIONS)
    shadow = f"{name}-shadow"
    await cast_shadow(cluster, name, shadow)
    sink = _Sink(cluster, name, queries, takes_over=takes_over and len(queries) > 1)
    warn = partial(cluster.world.logger.debug, "sink_warned")
    async with planned_bookies(cluster.world, lambda text: warn(text=text)) as bookies:
        readers = _Readers(cluster, (name, shadow), bookies)
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for number in range(sink.stream.randint(max(1, len(queries)), DRIVERS_MAX)):
                    nursery.start_soon(sink.drive, queries[number % len(queries)])
                nursery.start_soon(readers.look, partial(findings_meanwhile, queries=queries))
        await sink.settle()
        await readers.judge(sink.findings)


class _Sink:
    """One writer, and its checkpoints."""

    def __init__(self, cluster: WireCluster, target: str, queries: Sequence[str], *, takes_over: bool) -> None:
        self._world, self._cluster, self._target = cluster.world, cluster, target
        self.stream: Random = cluster.world.random(f"sink/{target}")
        self._takes_over = takes_over
        fenced = (WriterFenced,) if len(queries) > 1 and not takes_over else ()
        self._failures: tuple[type[Exception], ...] = (*FAILURES, *fenced)
        self._finished = dict.fromkeys(queries, -1)

    async def drive(self, query: str) -> None:
        """Lives one life of a driver after the other."""
        while True:
            with trio.move_on_after(self.stream.expovariate(1 / LIFE_SECONDS_MEAN)) as life:
                try:
                    async with _brokers(self._cluster) as brokers:
                        while await self._run_batch(brokers, query):
                            pass
                except self._failures as failure:
                    _failed(self._cluster, failure)
                    self._count(type(failure).__name__)
            if life.cancelled_caught:
                self._count("driver_died")
            await self._world.clock.sleep(self.stream.expovariate(1 / PAUSE_SECONDS_MEAN))

    async def settle(self) -> None:
        """Finishes what is decided."""
        while True:
            try:
                async with _brokers(self._cluster) as brokers:
                    await (await self._driver(brokers)).recover()
                return
            except FAILURES as failure:
                _failed(self._cluster, failure)
                await self._world.clock.sleep(RETRY_SECONDS)

    def findings(self, values: Sequence[Sequence[str]]) -> list[str]:
        """The findings in the target of a writer that has settled."""
        return findings(values, self._finished, takes_over=self._takes_over)

    async def _run_batch(self, brokers: KafkaBrokers, query: str) -> bool:
        """Writes the next batch; returns False if the driver dies while it commits."""
        batch = self._finished[query] + 1
        tasks: list[StagedTask] = []
        for number, rows in enumerate(rows_of_tasks(query, batch)):
            for attempt in range(self.stream.choice((1, 1, 2))):
                message = await self._task(brokers, query, number, rows)
                if attempt and rows:
                    self._count("task_again")
            tasks.append(message)
        with trio.move_on_after(self.stream.choice(COMMIT_SECONDS_MAX)) as commit:
            verdict = await (await self._driver(brokers)).commit(query, batch, tasks)
            self._count(verdict.name)
            self._finished[query] = max(self._finished[query], batch)
        if commit.cancelled_caught:
            self._count("commit_died")
            return False
        await self._world.clock.sleep(self.stream.expovariate(1 / PAUSE_SECONDS_MEAN))
        return True

    async def _task(self, brokers: KafkaBrokers, query: str, number: int, rows: Sequence[str]) -> StagedTask:
        encoder = RowEncoder(
            self._target, number, batch_bytes=self.stream.choice((150, 10_000)), compression=Codec.NONE
        )
        staging = TaskStaging(brokers, partial(self._topic, brokers), encoder, number)
        if rows:
            columns = {"value": pa.array(rows), "partition": pa.array(map(partition_of, rows), pa.int32())}
            await staging.add(pa.RecordBatch.from_pydict(columns))
        return await staging.finish(self._target, query)

    async def _driver(self, brokers: KafkaBrokers) -> SinkDriver:
        warn = partial(self._world.logger.debug, "sink_warned")
        topic = await self._topic(brokers)
        return SinkDriver(brokers, topic, lambda text: warn(text=text), takes_over=self._takes_over)

    async def _topic(self, brokers: KafkaBrokers) -> WriterTopic:
        return await WriterTopic.open(brokers, self._target, STAGING_PARTITIONS)

    def _count(self, outcome: str) -> None:
        self._world.logger.debug(f"sink_{outcome.lower()}")


class _Readers:
    """The readers of the target and its shadow."""

    def __init__(self, cluster: WireCluster, topics: tuple[str, str], bookies: PlannedBookies) -> None:
        self._cluster, self._topics, self._bookies = cluster, topics, bookies
        self._world = cluster.world
        self._stream = cluster.world.random(f"readers/{topics[0]}")

    async def look(self, findings: Callable[[list[list[str]]], list[str]]) -> None:
        """Reads the target or its shadow again and again, until cancelled.

        Raises:
            ProduceRefused: there is a finding.
        """
        while True:
            await self._world.clock.sleep(self._stream.expovariate(1 / LOOK_SECONDS_MEAN))
            topic = self._stream.choice(self._topics)
            try:
                async with _brokers(self._cluster) as brokers:
                    self._refuse(f"a Spark job that reads {topic}", findings(await self._planned(brokers, topic)))
            except FAILURES as failure:
                _failed(self._cluster, failure)

    async def judge(self, findings: Callable[[list[list[str]]], list[str]]) -> None:
        """Reads both topics in every way, once nothing is written any more; waits for the shadow.

        Raises:
            ProduceRefused: there is a finding, or two ways differ.
        """
        rows: list[list[str]] | None = None
        for topic in self._topics:
            shown = await self._settled(topic, rows)
            self._refuse(f"a Kafka client that reads {topic}", findings(shown))
            rows = shown

    async def _settled(self, topic: str, wanted: list[list[str]] | None) -> list[list[str]]:
        """The rows of a topic, read in every way; waits until they are the wanted ones."""
        tries = 0
        while True:
            tries += 1
            try:
                async with _brokers(self._cluster) as brokers:
                    rows = await fetched_rows(brokers, topic)
                    if wanted in (None, rows):
                        ways = {"a Spark job": await self._planned(brokers, topic)}
                        ways["a subscription"] = await self._subscribed(topic, f"judge-{tries}", rows)
                        self._refuse(topic, [f"{way} reads other rows" for way, its in ways.items() if its != rows])
                        return rows
            except (*FAILURES, NativeError) as failure:
                _failed(self._cluster, failure)
            await self._world.clock.sleep(RETRY_SECONDS)

    async def _planned(self, brokers: KafkaBrokers, topic: str) -> list[list[str]]:
        addresses = [(host, KAFKA_PORT) for host in self._cluster.hosts]
        options = source_options(addresses, topic, self._stream.choice((1, 5)))
        warn = partial(self._world.logger.debug, "sink_warned")
        rows, planned = await planned_rows(brokers, self._bookies, options, lambda text: warn(text=text))
        self._world.logger.debug("sink_rows_read_by_plan" if planned else "sink_rows_read", topic=topic)
        if topic == self._topics[1] and any(rows):
            self._world.logger.debug("sink_shadow_read", topic=topic)
        return rows

    async def _subscribed(self, topic: str, name: str, rows: list[list[str]]) -> list[list[str]]:
        addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in self._cluster.hosts)
        async with connect(addresses, world=self._world) as client:
            return await subscribed_rows(client, topic, name, [len(values) for values in rows])

    def _refuse(self, who: str, found: list[str]) -> None:
        if found:
            raise ProduceRefused(f"{who}: " + "; ".join(found))


def _brokers(cluster: WireCluster) -> KafkaBrokers:
    addresses = [(host, KAFKA_PORT) for host in cluster.hosts]
    return KafkaBrokers(cluster.world, addresses, "sink", patience_seconds=PATIENCE_SECONDS)


def _failed(cluster: WireCluster, failure: Exception) -> None:
    cluster.world.logger.debug("sink_failed", error=type(failure).__name__, text=str(failure))
