"""The topic of a writer: partition 0 has its proposals, the others have staged batches.

1. Staged batches are garbage unless a decision names them. A decision names places that were written before it.
2. A record that the topic does not have any more was deleted by a driver that had applied its decision.
3. A read that begins behind the wanted record means the same: a broker may not show the new start of the log yet.
4. A staged record is used only if its CRC and its number of records are those that the decision names. A wrong number
   would change the sequences of later batches, and a leader would take these for repeats.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from gnomon.client.kafka.admin import delete_records, delete_topic, ensure_topic
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.fetching import read_batches
from gnomon.client.kafka.producing import append
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.batches import EncodedBatch
from gnomon.spark.decisions import StagedBatch
from gnomon.spark.writing.targets import SINK_PREFIX
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

PROPOSALS: Final = 0
"""The partition of the proposals."""
STAGED_BYTES_MAX: Final = 64 << 20
"""The largest record of a writer's topic."""
STAGE_BYTES: Final = 512 << 10
"""Batches that are staged with one request, unless a single one is larger."""
_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(STAGED_BYTES_MAX),
}


class StagedRecord(NamedTuple):
    """A record of a writer's topic."""

    offset: int
    timestamp_ms: int
    value: bytes


class WriterTopic:
    """The topic of one writer, made by `open`."""

    def __init__(self, cluster: KafkaBrokers, writer: str, topic_id: UUID, partitions: int) -> None:
        self.writer, self.name, self.partitions = writer, SINK_PREFIX + writer, partitions
        self._cluster = cluster
        self._id = topic_id

    @classmethod
    async def open(cls, cluster: KafkaBrokers, writer: str, staging_partitions: int) -> WriterTopic:
        """The topic of a writer, which is created unless it exists; raises as `ensure_topic`."""
        found = await ensure_topic(cluster, SINK_PREFIX + writer, 1 + staging_partitions, _CONFIGS)
        return cls(cluster, writer, found.id, len(found.leaders))

    @classmethod
    async def find(cls, cluster: KafkaBrokers, writer: str) -> WriterTopic | None:
        """The topic of a writer, None if there is none; raises as `KafkaBrokers.retried`."""
        name = SINK_PREFIX + writer
        found = (await cluster.retried("", lambda: cluster.topics([name], skip_unknown=True))).get(name)
        return None if found is None else cls(cluster, writer, found.id, len(found.leaders))

    def place(self, partition: int) -> TopicPartition:
        """One of its partitions."""
        return TopicPartition(self.name, partition)

    @property
    def staging(self) -> list[TopicPartition]:
        """The partitions of staged batches."""
        return [self.place(partition) for partition in range(1, self.partitions)]

    async def stage(self, task: int, batches: Sequence[tuple[TopicPartition, EncodedBatch]]) -> list[StagedBatch]:
        """Appends batches to the staging partition of a task, and returns their places; raises as `append`."""
        partition = 1 + task % (self.partitions - 1)
        found: list[StagedBatch] = []
        for group in _groups(batches):
            values = [each.data for _, each in group]
            base = await self.append(partition, values)
            for number, (target, each) in enumerate(group):
                found.append(StagedBatch(target, partition, base + number, each.records, crc32c(each.data)))
        return found

    async def stage_content(self, content: bytes, part_bytes: int) -> tuple[tuple[int, int], ...]:
        """Stages the content of a proposal in parts, and returns the partition and the offset of each."""
        parts = [content[at : at + part_bytes] for at in range(0, len(content), part_bytes)]
        return tuple([(1, await self.append(1, [part])) for part in parts])

    async def staged_content(self, places: Sequence[tuple[int, int]]) -> bytes | None:
        """Undoes `stage_content`; None if a part was deleted. Raises as `read`."""
        found = []
        try:
            for partition, offset in places:
                async with aclosing(self.read(partition, offset, offset + 1)) as records:
                    values = [record.value async for record in records if record.offset == offset]
                if not values:
                    return None
                found += values
        except RequestRefused as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            raise
        return b"".join(found)

    async def append(self, partition: int, values: Sequence[bytes]) -> int:
        """Appends records to one partition and returns the first offset; raises as `producing.append`."""
        records = [Record(number, 0, None, value) for number, value in enumerate(values)]
        return await append(
            self._cluster, self.place(partition), build_batch(records, base_timestamp=self._cluster.clock.wall_ms())
        )

    async def read(self, partition: int, start: int, stop: int) -> AsyncGenerator[StagedRecord, None]:
        """The records of a partition from one offset to another; the last batch may have more.

        Raises:
            RequestRefused: with OFFSET_OUT_OF_RANGE where `start` was deleted; else as `read_batches`.
        """
        async with aclosing(read_batches(self._cluster, self.place(partition), self._id, start, stop)) as parts:
            async for part in parts:
                for batch in part.batches:
                    header = parse_batch(batch)
                    for record in iterate_records(batch, STAGED_BYTES_MAX):
                        offset = header.base_offset + record.offset_delta
                        if offset >= start:
                            yield StagedRecord(offset, header.base_timestamp, record.value or b"")

    async def delete_before(self, ends: Mapping[int, int]) -> None:
        """Deletes the records of partitions below these offsets; raises as `delete_records`."""
        await delete_records(self._cluster, self.name, ends)

    async def delete(self) -> None:
        """Deletes the topic."""
        await delete_topic(self._cluster, self.name)


class StagedReader:
    """Reads staged batches, those of one task in the order in which it staged them: each request gets one group."""

    def __init__(self, topic: WriterTopic) -> None:
        self._topic = topic
        self._group: dict[tuple[int, int], bytes] = {}

    async def get(self, batch: StagedBatch) -> bytes | None:
        """An encoded batch; None if it was deleted.

        Raises:
            StagedDamaged: see invariant 4.
            RequestRefused, Unreachable: as `read_batches`.
        """
        place = batch.staging_partition, batch.offset
        if place not in self._group:
            try:
                await self._fetch(*place)
            except RequestRefused as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    return None
                raise
        data = self._group.get(place)
        if data is None:
            return None
        if crc32c(data) != batch.crc or parse_batch(memoryview(data)).records_count != batch.records:
            raise StagedDamaged(
                f"the record at offset {batch.offset} of partition {batch.staging_partition} of topic"
                f" {self._topic.name!r} is not the batch that was staged there"
            )
        return data

    async def _fetch(self, partition: int, offset: int) -> None:
        async with aclosing(self._topic.read(partition, offset, offset + 1)) as records:
            self._group = {(partition, record.offset): record.value async for record in records}


class StagedDamaged(Exception):
    """A record of a writer's topic is not what a driver wrote."""


def _groups(
    batches: Sequence[tuple[TopicPartition, EncodedBatch]],
) -> list[list[tuple[TopicPartition, EncodedBatch]]]:
    """The batches in groups of at most STAGE_BYTES, or of one."""
    groups: list[list[tuple[TopicPartition, EncodedBatch]]] = []
    size = 0
    for each in batches:
        if not groups or size + len(each[1].data) > STAGE_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += len(each[1].data)
    return groups
