"""Drivers of a sink in a storm: they stage, propose, decide and apply, and die at any step.

    scenario = LogScenario(..., beside={"sink": write_rows, "taken": partial(write_rows, queries=("a", "b"))})

1. Several drivers work on one checkpoint at the same time, as after a Spark driver that was thought dead.
2. A task may have several attempts; the driver gets the message of one of them.
3. Two queries take the writer from each other, again and again.
4. When all is over, one driver recovers the writer, and `written_rows` judges the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from random import Random
from typing import Final

import pyarrow as pa
import trio

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.fetching import read_batches
from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.topic_partition import EARLIEST, LATEST, TopicPartition
from gnomon.runtime.world import Unreachable
from gnomon.spark.writing.committing import SinkDriver, StagingLost
from gnomon.spark.writing.delivery import DeliveryFailed
from gnomon.spark.writing.row_encoder import RowEncoder
from gnomon.spark.writing.staging import StagedTask, TaskStaging
from gnomon.spark.writing.target import RowRefused
from gnomon.spark.writing.writer_topic import WriterTopic
from gnomon.testing.storms.kafka.log_clients import ProduceRefused
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.sinks.written_rows import PARTITIONS, findings, partition_of, rows_of_tasks
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.records import iterate_records

KAFKA_PORT: Final = 9092
DRIVERS_MAX: Final = 3
LIFE_SECONDS_MEAN: Final = 1.5
PAUSE_SECONDS_MEAN: Final = 0.3
PATIENCE_SECONDS: Final = 5.0
STAGING_PARTITIONS: Final = 2
FAILURES: Final = (RequestRefused, Unreachable, DeliveryFailed, StagingLost, RowRefused)
"""Spark runs the batch again. A row is refused while a broker does not know its topic yet."""


async def write_rows(
    cluster: WireCluster, seconds: float, *, name: str = "sink", queries: Sequence[str] = ("only",)
) -> None:
    """Writes rows to a topic of this name for the duration of the storm, and judges it; raises ProduceRefused.

    Args:
        queries: several take the writer from each other.
    """
    await create_topic(cluster, name, {}, PARTITIONS)
    sink = _Sink(cluster, name, queries)
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for number in range(sink.stream.randint(max(1, len(queries)), DRIVERS_MAX)):
                nursery.start_soon(sink.drive, queries[number % len(queries)])
    await sink.settle()


class _Sink:
    """One writer, its checkpoints, and its target."""

    def __init__(self, cluster: WireCluster, target: str, queries: Sequence[str]) -> None:
        self._world, self._hosts, self._target = cluster.world, cluster.hosts, target
        self.stream: Random = cluster.world.random(f"sink/{target}")
        self._takes_over = len(queries) > 1
        self._finished = dict.fromkeys(queries, -1)

    async def drive(self, query: str) -> None:
        """Lives one life of a driver after the other."""
        while True:
            with trio.move_on_after(self.stream.expovariate(1 / LIFE_SECONDS_MEAN)) as life:
                try:
                    async with self._brokers() as brokers:
                        while True:
                            await self._run_batch(brokers, query)
                except FAILURES as failure:
                    self._world.logger.debug("sink_failed", error=type(failure).__name__, text=str(failure))
                    self._count(type(failure).__name__)
            if life.cancelled_caught:
                self._world.logger.debug("sink_driver_died", query=query)
            await self._world.clock.sleep(self.stream.expovariate(1 / PAUSE_SECONDS_MEAN))

    async def settle(self) -> None:
        """Finishes what is decided, and judges the rows.

        Raises:
            ProduceRefused: `written_rows` has a finding.
        """
        while True:
            try:
                async with self._brokers() as brokers:
                    await (await self._driver(brokers)).recover()
                    values = [await self._values(brokers, partition) for partition in range(PARTITIONS)]
                break
            except FAILURES as failure:
                self._world.logger.debug("sink_failed", error=type(failure).__name__, text=str(failure))
                await self._world.clock.sleep(1.0)
        found = findings(values, self._finished)
        if found:
            raise ProduceRefused(f"sink {self._target}: " + "; ".join(found))

    async def _run_batch(self, brokers: KafkaBrokers, query: str) -> None:
        batch = self._finished[query] + 1
        tasks: list[StagedTask] = []
        for number, rows in enumerate(rows_of_tasks(query, batch)):
            for _ in range(self.stream.choice((1, 1, 2))):
                message = await self._task(brokers, query, number, rows)
            tasks.append(message)
        verdict = await (await self._driver(brokers)).commit(query, batch, tasks)
        self._count(verdict.name)
        self._finished[query] = max(self._finished[query], batch)
        await self._world.clock.sleep(self.stream.expovariate(1 / PAUSE_SECONDS_MEAN))

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

    async def _values(self, brokers: KafkaBrokers, partition: int) -> list[str]:
        place = TopicPartition(self._target, partition)
        topic_id = (await brokers.topics([self._target]))[self._target].id
        start, stop = [(await find_offsets(brokers, {place: end}))[place] or 0 for end in (EARLIEST, LATEST)]
        found = []
        async with aclosing(read_batches(brokers, place, topic_id, start, stop)) as parts:
            async for part in parts:
                for batch in part.batches:
                    found += [(record.value or b"").decode() for record in iterate_records(batch, 1 << 20)]
        return found

    def _brokers(self) -> KafkaBrokers:
        addresses = [(host, KAFKA_PORT) for host in self._hosts]
        return KafkaBrokers(self._world, addresses, "sink", patience_seconds=PATIENCE_SECONDS)

    def _count(self, outcome: str) -> None:
        self._world.logger.debug(f"sink_{outcome.lower()}")
