"""Places in the log: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.broker.errors import KafkaError, metadata_refusals
from gnomon.broker.in_use.routes import Routes
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.readable import Readable
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.placement.placement import Placement
from gnomon.log.entry import LeaderEpoch, Offset
from gnomon.log.log_reader import LogBounds, RecordsThread
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.positions import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from gnomon.wire.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
ITEMS_PER_TURN = 32
"""Topics of a request, or partitions of a topic, after which the handler yields to other tasks."""

T = TypeVar("T")
R = TypeVar("R")


class PositionHandlers:
    """Answers the requests about places in the log of one broker's partitions."""

    def __init__(self, routes: Routes, placement: Placement, batch_thread: BatchThread, clock: Clock) -> None:
        self._routes = routes
        self._placement = placement
        self._batch_thread = batch_thread
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        return {
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
            ApiKey.DELETE_RECORDS: self.delete_records,
        }

    async def _each(self, items: Sequence[T], answer: Callable[[T], Awaitable[R]]) -> list[R]:
        """The answers for all items; a long list yields to other tasks."""
        return [await answer(item) async for item in paced(items, ITEMS_PER_TURN, self._clock)]

    async def _opened(self, topic: str, index: int) -> tuple[Readable, LogBounds]:
        partition = self._routes.to_read(topic, index)
        log = await partition.opened()
        if log is None:
            raise _not_opened(partition)
        return partition, log

    async def _opened_in_epoch(self, topic: str, index: int, epoch: int) -> tuple[Readable, LogBounds]:
        """Like `_opened`, and checks the leader epoch that the client knows."""
        partition, log = await self._opened(topic, index)
        code = partition.check_epoch(epoch)
        if code != ErrorCode.NONE:
            raise KafkaError(code, "another leader epoch")
        return partition, log

    async def list_offsets(self, request: Request) -> ListOffsetsResponse:
        """Offsets by time; -1 without an error if no record is that recent."""
        message: ListOffsetsRequest = request.message
        thread = partial(self._batch_thread.work, request.exchange)
        named = Counter((topic.name, item.partition_index) for topic in message.topics for item in topic.partitions)

        async def listed(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
            partitions = await self._each(
                topic.partitions, lambda item: self._list_one(topic.name, item, named, thread)
            )
            return ListOffsetsTopicResponse(name=topic.name, partitions=partitions)

        return ListOffsetsResponse(topics=await self._each(message.topics, listed))

    async def _list_one(
        self, topic: str, item: ListOffsetsPartition, named: Counter[tuple[str, int]], thread: RecordsThread
    ) -> ListOffsetsPartitionResponse:
        index = item.partition_index
        try:
            if named[topic, index] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice in one request")
            partition, log = await self._opened_in_epoch(topic, index, item.current_leader_epoch)
            timestamp, offset, epoch = await _place(partition, log, item.timestamp, thread)
        except KafkaError as error:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
        except LedgerError:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        return ListOffsetsPartitionResponse(
            partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=epoch
        )

    async def offset_for_leader_epoch(self, request: Request) -> OffsetForLeaderEpochResponse:
        """The ends of leader epochs, by which a consumer notices a truncated log (KIP-320)."""
        message: OffsetForLeaderEpochRequest = request.message

        async def ends(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
            partitions = await self._each(topic.partitions, lambda item: self._end_of_one(topic.topic, item))
            return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)

        return OffsetForLeaderEpochResponse(topics=await self._each(message.topics, ends))

    async def _end_of_one(self, topic: str, item: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition, _ = await self._opened_in_epoch(topic, item.partition, item.current_leader_epoch)
            epoch, offset = await partition.end_of_epoch(LeaderEpoch(item.leader_epoch))
        except KafkaError as error:
            return EpochEndOffset(error_code=error.code, partition=item.partition)
        except LedgerError:
            return EpochEndOffset(error_code=ErrorCode.KAFKA_STORAGE_ERROR, partition=item.partition)
        return EpochEndOffset(partition=item.partition, leader_epoch=epoch, end_offset=offset)

    async def delete_records(self, request: Request) -> DeleteRecordsResponse:
        """Moves the start of logs forward."""
        message: DeleteRecordsRequest = request.message

        async def deleted(topic: DeleteRecordsTopic) -> DeleteRecordsTopicResult:
            partitions = await self._each(topic.partitions, lambda item: self._delete_one(topic.name, item))
            return DeleteRecordsTopicResult(name=topic.name, partitions=partitions)

        return DeleteRecordsResponse(topics=await self._each(message.topics, deleted))

    async def _delete_one(self, topic: str, item: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        index = item.partition_index
        try:
            self._placement.check_lease()
            partition = self._routes.to_change(topic, index)
            log = await partition.opened()
            if log is None:
                raise _not_opened(partition)
            before = log.high_watermark if item.offset == -1 else Offset(item.offset)
            if before > log.high_watermark and not await _is_its_end(partition):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker may have continued the log")
            if not 0 <= before <= log.high_watermark:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends at {log.high_watermark}")
            with metadata_refusals():
                low_watermark = await partition.delete_before(before)
        except KafkaError as error:
            return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)


async def _is_its_end(partition: Partition) -> bool:
    """Whether the log certainly ends where this broker says, since no other one has continued it (`read_index`)."""
    confirmed, found = trio.Event(), list[bool]()

    def done(certain: bool) -> None:
        found.append(certain)
        confirmed.set()

    partition.confirm(done)
    await confirmed.wait()
    return found[0]


def _not_opened(partition: Readable) -> KafkaError:
    return KafkaError(partition.failure or ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition could not be opened")


async def _place(partition: Readable, log: LogBounds, timestamp: int, thread: RecordsThread) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch) for one of the special timestamps, or for a time in milliseconds."""
    if timestamp == LATEST:
        return -1, log.high_watermark, log.epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, *await partition.earliest()
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    if timestamp == MAX_TIMESTAMP:
        found = await partition.max_timestamp_offset(thread)
    elif timestamp < 0:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")
    else:
        found = await partition.offset_for_timestamp(timestamp, thread)
    return (-1, -1, -1) if found is None else (found[1], found[0], found[2])
