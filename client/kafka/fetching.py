"""Reads the record batches of a partition as its leader stores them, without a consumer or a group."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final, NamedTuple
from uuid import UUID

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.connection import KafkaClientConnection, PendingResponse
from gnomon.client.kafka.errors import RequestRefused, check
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.wire.kafka.batch import MalformedBatch, parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

FETCH_BYTES: Final = 1 << 20
WAIT_MS: Final = 500
_VERSION: Final = 13
"""Names a topic by its id: a topic that was deleted and created again is another one."""


class FetchedBatches(NamedTuple):
    """Batches that follow each other, and the offset after them."""

    batches: list[memoryview]
    next_offset: int


async def read_batches(
    cluster: KafkaBrokers, place: TopicPartition, topic_id: UUID, start: int, stop: int
) -> AsyncGenerator[FetchedBatches, None]:
    """The batches with the offsets from `start` up to, but not including, `stop`; the first and the last may have more.

    While the caller works on a result, the next one is on its way.

    Raises:
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
        MalformedBatch: the leader has sent something else.
    """
    fetch = _Fetching(cluster, place, topic_id, start, stop)
    while fetch.offset < stop:
        yield await cluster.retried(place.topic, fetch.next)


class _Fetching:
    """The fetches of one partition."""

    def __init__(self, cluster: KafkaBrokers, place: TopicPartition, topic_id: UUID, start: int, stop: int) -> None:
        self._cluster, self._place, self._topic_id = cluster, place, topic_id
        self.offset, self._stop = start, stop
        self._ahead: tuple[KafkaClientConnection, PendingResponse] | None = None

    async def next(self) -> FetchedBatches:
        """The next batches, at least one."""
        leader, pending = self._ahead or self._send(await self._cluster.leader(*self._place))
        self._ahead = None
        answer = await leader.wait(pending)
        assert isinstance(answer, FetchResponse), "a Fetch is answered by its response"
        subject = f"partition {self._place.partition} of topic {self._place.topic!r} at offset {self.offset}"
        check(answer.error_code, subject)
        data = answer.responses[0].partitions[0]
        check(data.error_code, subject)
        found = split(memoryview(data.records or b""), self.offset, self._stop)
        if not found.batches:
            raise RequestRefused(ErrorCode.OFFSET_NOT_AVAILABLE, subject)
        self.offset = found.next_offset
        if self.offset < self._stop:
            self._ahead = self._send(leader)
        return found

    def _send(self, leader: KafkaClientConnection) -> tuple[KafkaClientConnection, PendingResponse]:
        partition = FetchPartition(
            partition=self._place.partition, fetch_offset=self.offset, partition_max_bytes=FETCH_BYTES
        )
        topic = FetchTopic(topic_id=self._topic_id, partitions=[partition])
        request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, topics=[topic])
        return leader, leader.send(request, _VERSION)


def split(records: memoryview, offset: int, stop: int) -> FetchedBatches:
    """The batches of an answer to a fetch from `offset` on that begin before `stop`, without one that is cut short.

    Raises:
        MalformedBatch: the bytes do not begin with a batch.
    """
    batches: list[memoryview] = []
    position = 0
    while position < len(records) and offset < stop:
        try:
            header = parse_batch(records, position)
        except MalformedBatch:
            if not batches:
                raise
            break
        end = position + header.size_bytes
        batches.append(records[position:end])
        position, offset = end, header.next_offset
    return FetchedBatches(batches, offset)
