"""Stages the rows of one task attempt, and describes them to the driver.

A task with few rows stages nothing: its message has the batches, and the driver stages those of all tasks together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import pyarrow as pa

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.batches import EncodedBatch
from gnomon.spark.decisions import StagedBatch
from gnomon.spark.writing.row_encoder import RowEncoder
from gnomon.spark.writing.target import Target
from gnomon.spark.writing.targets import find_targets
from gnomon.spark.writing.writer_topic import WriterTopic

MESSAGE_VERSION: Final = 1
MESSAGE_BYTES_MAX: Final = 64 << 10
"""The most bytes of batches in a message."""
_ROWS_BYTES: Final = 8 << 20
"""Rows that are encoded together."""
_STAGED_TOGETHER_BYTES: Final = 4 << 20
"""Encoded batches that a task keeps before it stages them."""


class StagedTask(NamedTuple):
    """The message of a task attempt that succeeded."""

    version: int
    writer: str
    query: str
    staged: tuple[StagedBatch, ...]
    """In the order of the rows."""
    inline: tuple[tuple[TopicPartition, EncodedBatch], ...]
    """Batches that are not staged; there are none if `staged` has any."""


class TaskStaging:
    """One attempt of a task.

    Args:
        writer: opens the topic of the writer. It is called once there is something to stage: a task whose rows are
            refused, or are in its message, creates no topic.
        task: its number among those of its Spark batch.
    """

    def __init__(
        self, cluster: KafkaBrokers, writer: Callable[[], Awaitable[WriterTopic]], encoder: RowEncoder, task: int
    ) -> None:
        self._cluster, self._writer, self._encoder, self._task = cluster, writer, encoder, task
        self._topic: WriterTopic | None = None
        self._targets: dict[str, Target] = {}
        self._rows: list[pa.RecordBatch] = []
        self._rows_bytes = 0
        self._encoded: list[tuple[TopicPartition, EncodedBatch]] = []
        self._encoded_bytes = 0
        self._staged: list[StagedBatch] = []

    async def add(self, rows: pa.RecordBatch) -> None:
        """Takes the next rows.

        Raises:
            RowRefused: one of the rows, or its topic, cannot be written.
            RequestRefused, Unreachable: as `KafkaBrokers.retried`.
        """
        self._rows.append(rows)
        self._rows_bytes += rows.nbytes
        if self._rows_bytes >= _ROWS_BYTES:
            await self._encode()
        if self._encoded_bytes >= _STAGED_TOGETHER_BYTES:
            await self._stage()

    async def finish(self, writer: str, query: str) -> StagedTask:
        """The message about all rows; raises as `add`."""
        await self._encode()
        if self._staged or self._encoded_bytes > MESSAGE_BYTES_MAX:
            await self._stage()
        return StagedTask(MESSAGE_VERSION, writer, query, tuple(self._staged), tuple(self._encoded))

    async def _encode(self) -> None:
        if not self._rows_bytes:
            return
        rows = pa.Table.from_batches(self._rows)
        self._rows, self._rows_bytes = [], 0
        unknown = [name for name in self._encoder.topics_of(rows) if name not in self._targets]
        if unknown:
            self._targets |= await find_targets(self._cluster, unknown)
        found = self._encoder.encode(rows, self._targets, self._cluster.clock.wall_ms())
        self._encoded += found
        self._encoded_bytes += sum(len(batch.data) for _, batch in found)

    async def _stage(self) -> None:
        self._topic = self._topic or await self._writer()
        self._staged += await self._topic.stage(self._task, self._encoded)
        self._encoded, self._encoded_bytes = [], 0
