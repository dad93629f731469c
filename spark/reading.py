"""Reads the range of one task into Arrow record batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pyarrow as pa

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.fetching import read_batches
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.columns import ColumnDecoder
from gnomon.spark.planning import TASK_VERSION, Task


class OtherVersion(Exception):
    """The task was planned by a driver with another version of gnomon."""


async def read(cluster: KafkaBrokers, task: Task) -> AsyncGenerator[pa.RecordBatch, None]:
    """The rows of a task, in the order of their offsets.

    Raises:
        OtherVersion: of the driver.
        UnreadableBatch: a batch of the range.
        MalformedBatch, RequestRefused, Unreachable: as `read_batches`.
    """
    if task.version != TASK_VERSION:
        raise OtherVersion(
            f"the driver plans tasks of version {task.version}, this worker knows {TASK_VERSION}: install the same"
            " gnomon for both"
        )
    wanted = task.range
    decoder = ColumnDecoder(wanted, task.columns, batch_bytes_max=task.batch_bytes_max)
    place = TopicPartition(wanted.topic, wanted.partition)
    async with aclosing(read_batches(cluster, place, task.topic_id, wanted.start, wanted.stop)) as parts:
        async for part in parts:
            for batch in part.batches:
                rows = decoder.add(batch)
                if rows is not None:
                    yield rows
    rows = decoder.flush()
    if rows is not None:
        yield rows
