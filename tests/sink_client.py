"""Drivers and tasks of a sink on a simulated cluster, without a JVM."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import pyarrow as pa
from spark_client import SparkClient, with_topics

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.fetching import read_batches
from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.topic_partition import EARLIEST, LATEST, TopicPartition
from gnomon.spark.writing.committing import SinkDriver
from gnomon.spark.writing.row_encoder import RowEncoder
from gnomon.spark.writing.staging import StagedTask, TaskStaging
from gnomon.spark.writing.writer_topic import WriterTopic
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.records import iterate_records

TARGET = TopicPartition("others", 0)
STAGING_PARTITIONS = 2


def rows_of(values: Sequence[str], **columns: Sequence[object]) -> pa.RecordBatch:
    types = {"partition": pa.int32(), "timestamp": pa.timestamp("us", "UTC")}
    arrays = {name: pa.array(column, types.get(name)) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string()), **arrays})


class SinkClient:
    """The sink's parts, on the topic `others`, which has one partition with five records."""

    def __init__(self, cluster: KafkaBrokers) -> None:
        self.cluster = cluster
        self.warnings: list[str] = []

    async def topic(self, writer: str = "w") -> WriterTopic:
        return await WriterTopic.open(self.cluster, writer, STAGING_PARTITIONS)

    async def driver(self, writer: str = "w", *, takes_over: bool = False) -> SinkDriver:
        return SinkDriver(self.cluster, await self.topic(writer), self.warnings.append, takes_over=takes_over)

    async def task(
        self,
        *batches: pa.RecordBatch,
        task: int = 0,
        query: str = "q",
        topic: str | None = "others",
        batch_bytes: int = 200,
    ) -> StagedTask:
        encoder = RowEncoder(topic, task, batch_bytes=batch_bytes, compression=Codec.NONE)
        staging = TaskStaging(self.cluster, self.topic, encoder, task)
        for rows in batches:
            await staging.add(rows)
        return await staging.finish("w", query)

    async def bounds(self, place: TopicPartition) -> tuple[int, int]:
        start, end = [(await find_offsets(self.cluster, {place: each}))[place] or 0 for each in (EARLIEST, LATEST)]
        return start, end

    async def values(self, place: TopicPartition = TARGET, start: int = 5) -> list[str]:
        """The values of the records from an offset on; the topic `others` begins with five of its own."""
        topic_id = (await self.cluster.topic(place.topic)).id
        found = []
        _, end = await self.bounds(place)
        async with aclosing(read_batches(self.cluster, place, topic_id, start, end)) as parts:
            async for part in parts:
                for batch in part.batches:
                    found += [(record.value or b"").decode() for record in iterate_records(batch, 1 << 20)]
        return found


def with_sink(work: Callable[[SinkClient], Awaitable[None]], kafka: Mapping[str, str] | None = None) -> None:
    async def on_topics(client: SparkClient) -> None:
        await work(SinkClient(client.cluster))

    with_topics(on_topics, kafka)
