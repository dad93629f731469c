"""The writer of a sink, as its options say: makes the staging of its tasks, and its drivers.

`spark.sink` has the part that needs Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.spark.writing.committing import SinkDriver
from gnomon.spark.writing.row_encoder import RowEncoder
from gnomon.spark.writing.sink_options import SinkOptions
from gnomon.spark.writing.staging import TaskStaging
from gnomon.spark.writing.writer_topic import WriterTopic


class SinkWriter(NamedTuple):
    """One writer on one cluster."""

    cluster: KafkaBrokers
    options: SinkOptions
    name: str

    async def topic(self) -> WriterTopic:
        """Its topic, which is created unless it exists; raises as `WriterTopic.open`."""
        return await WriterTopic.open(self.cluster, self.name, self.options.staging_partitions)

    def task(self, number: int) -> TaskStaging:
        """One attempt of a task; `number` is that of the task in its Spark batch."""
        options = self.options
        encoder = RowEncoder(options.topic, number, batch_bytes=options.batch_bytes, compression=options.compression)
        return TaskStaging(self.cluster, self.topic, encoder, number)

    async def driver(self, warn: Callable[[str], None]) -> SinkDriver:
        """A driver; `warn` is that of `SinkDriver`. Raises as `WriterTopic.open`."""
        return SinkDriver(self.cluster, await self.topic(), warn, takes_over=self.options.takes_over)
