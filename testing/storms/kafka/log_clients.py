"""An idempotent producer and a consumer for simulations; both record the answers that they get (see `log_checker`).

    producer = SimulatedProducer(cluster, "orders", {0: history}, name="producer-1")
    consumer = SimulatedConsumer(cluster, "orders", 0, history, name="consumer-1")
    nursery.start_soon(producer.run)
    nursery.start_soon(consumer.run)
    producer.send(b"unique value", partition=0)
    await producer.flush()                             # all are acknowledged, after any number of retries
    history.final = await consumer.read_all()          # after the faults have healed

1. A batch keeps its producer id and sequence through every retry, so that no record is doubled.
2. Up to `in_flight_max` requests are in flight, in order. After any failure the producer sends all unacknowledged
   batches again, in order, on a new connection, while the old requests may still be in flight.
3. On a new connection a producer first repeats the last acknowledged batch of each partition, as if it had lost the
   acknowledgement. The answer has to be the same. The repeats need an `in_flight_max` of at most 4, because brokers
   keep five batches.
4. A producer that `drains` first waits for the other answers, as librdkafka does. None of them may be that a batch is
   missing: librdkafka would begin a new epoch, and repeat in it also what may be in the log.
5. A send is unknown until it is acknowledged. An error that is not retriable is a finding, not an outcome: a broker
   that refuses the sequence of the oldest batch has lost producer state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from gnomon.client.kafka.connection import PendingResponse
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.log_checker import LogHistory, Send
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.batch import HEADER_BYTES, parse_batch
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from gnomon.wire.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from gnomon.wire.kafka.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 6
INIT_PRODUCER_ID_VERSION = 4
EARLIEST, LATEST = -2, -1
RETRY_SECONDS = 0.1
BATCHES_REMEMBERED = 5
"""The batches of a producer that a broker remembers per partition (KIP-98)."""
BATCH_BYTES_MAX = 64 * 1024 * 1024


class ProduceRefused(AssertionError):
    """A broker gave an answer that a correct broker does not give to these clients."""


def _check(code: int, what: str) -> None:
    """Raises `Unreachable` if a retry may help, `ProduceRefused` for other errors."""
    error = ErrorCode(code)
    if error.retriable:
        raise Unreachable(f"{what}: {error.name}")
    if error is not ErrorCode.NONE:
        raise ProduceRefused(f"{what}: {error.name}: {error.text}")


@dataclass(slots=True)
class _SentBatch:
    partition: int
    sequence: int
    sends: list[Send]
    data: bytes


class SimulatedProducer:
    """Sends to partitions of one topic, idempotently, for ever; a request has a batch for each partition with records.

    Args:
        histories: the history of each partition that the producer sends to.
        in_flight_max: requests in flight; BATCHES_REMEMBERED at most.
        batch_records_max: records in one batch.
        key_of: returns the key of a record by its value.
        compression: the codec of every batch.
        drains: whether the other answers are waited for after a failure.
    """

    def __init__(
        self,
        cluster: WireCluster,
        topic: str,
        histories: Mapping[int, LogHistory],
        *,
        name: str,
        in_flight_max: int = 5,
        batch_records_max: int = 20,
        key_of: Callable[[bytes], bytes | None] = lambda value: None,
        compression: Codec = Codec.NONE,
        drains: bool = False,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._topic = topic
        self._histories = histories
        self._drains = drains
        self._in_flight_max = in_flight_max
        self._batch_records_max = batch_records_max
        self._key_of = key_of
        self._compression = compression
        self._waiting: dict[int, deque[Send]] = {partition: deque() for partition in histories}
        self._unsettled: deque[list[_SentBatch]] = deque()
        self._producer: tuple[int, int] | None = None
        self._sequence = dict.fromkeys(histories, 0)
        self._last: dict[int, _SentBatch] = {}
        """The last acknowledged batch of each partition."""
        self._wake = trio.Event()
        self._settled = trio.Event()

    def send(self, value: bytes, partition: int) -> Send:
        """Queues a record; its value must be unique in its history."""
        send = self._histories[partition].send(self.name, value)
        self._waiting[partition].append(send)
        self._wake.set()
        return send

    async def flush(self) -> None:
        """Waits until all records are acknowledged, including those that are sent during the wait."""
        while self._unsettled or any(self._waiting.values()):
            await self._settled.wait()

    async def run(self) -> None:
        """Connects and sends until cancelled."""
        clock = self._cluster.world.clock
        while True:
            connection: WireConnection | None = None
            try:
                await self._identify()
                connection = await self._cluster.leader(self._topic, next(iter(self._histories)))
                if self._last and self._in_flight_max < BATCHES_REMEMBERED:
                    await self._repeat(connection)
                await self._flow(connection)
            except Unreachable:
                await clock.sleep(RETRY_SECONDS)
            if connection is not None:
                connection.close()

    async def _identify(self) -> None:
        """Gets a producer id from any broker."""
        if self._producer is not None:
            return
        connection = await self._cluster.connect()
        try:
            request = InitProducerIdRequest(transaction_timeout_ms=60_000)
            found = await connection.request(request, INIT_PRODUCER_ID_VERSION, InitProducerIdResponse)
            _check(found.error_code, f"{self.name} asked for a producer id")
            self._producer = (found.producer_id, found.producer_epoch)
        finally:
            connection.close()

    async def _repeat(self, connection: WireConnection) -> None:
        batches = list(self._last.values())
        answer = await connection.request(self._request(batches), PRODUCE_VERSION, ProduceResponse)
        for batch, found in zip(batches, answer.responses[0].partition_responses, strict=True):
            if found.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                continue
            _check(found.error_code, f"{self.name} repeated sequence {batch.sequence} to partition {batch.partition}")
            if found.base_offset != batch.sends[0].offset and min(found.base_offset, batch.sends[0].offset) >= 0:
                raise ProduceRefused(
                    f"{self.name} got offset {batch.sends[0].offset} for sequence {batch.sequence} of partition "
                    f"{batch.partition}, and {found.base_offset} for its repeat"
                )

    async def _flow(self, connection: WireConnection) -> None:
        """Keeps requests in flight until one fails."""
        in_flight: deque[PendingResponse] = deque()
        while True:
            while len(in_flight) < self._in_flight_max:
                if len(in_flight) == len(self._unsettled) and not self._form_batches():
                    break
                batches = self._unsettled[len(in_flight)]
                in_flight.append(connection.send(self._request(batches), PRODUCE_VERSION))
            if in_flight:
                answer = await connection.wait(in_flight.popleft())
                assert isinstance(answer, ProduceResponse)
                try:
                    self._settle(answer)
                except Unreachable:
                    if self._drains:
                        await self._drain(connection, in_flight)
                    raise
            else:
                self._wake = trio.Event()
                await self._wake.wait()

    async def _drain(self, connection: WireConnection, in_flight: deque[PendingResponse]) -> None:
        """Waits for the answers behind one that was a failure; acknowledgements in them are asked for again."""
        for pending in in_flight:
            answer = await connection.wait(pending)
            assert isinstance(answer, ProduceResponse)
            for found in answer.responses[0].partition_responses:
                if found.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    raise ProduceRefused(
                        f"{self.name} got OUT_OF_ORDER_SEQUENCE_NUMBER for a batch behind a refused one"
                    )
            self._cluster.world.logger.debug("answer_drained")

    def _form_batches(self) -> bool:
        batches = [self._form_batch(partition) for partition, waiting in self._waiting.items() if waiting]
        if batches:
            self._unsettled.append(batches)
        return bool(batches)

    def _form_batch(self, partition: int) -> _SentBatch:
        waiting, sequence = self._waiting[partition], self._sequence[partition]
        count = min(len(waiting), self._batch_records_max)
        sends = [waiting.popleft() for _ in range(count)]
        assert self._producer is not None
        data = build_batch(
            [Record(index, key=self._key_of(send.value), value=send.value) for index, send in enumerate(sends)],
            base_timestamp=self._cluster.world.clock.wall_ms(),
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            compression=self._compression,
        )
        self._sequence[partition] = sequence + count
        return _SentBatch(partition, sequence, sends, data)

    def _request(self, batches: list[_SentBatch]) -> ProduceRequest:
        partitions = [PartitionProduceData(index=batch.partition, records=batch.data) for batch in batches]
        topic = TopicProduceData(name=self._topic, partition_data=partitions)
        return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])

    def _settle(self, response: ProduceResponse) -> None:
        """Processes the answer to the oldest request; failed batches stay in the request and are sent again."""
        batches = self._unsettled[0]
        failed: list[tuple[_SentBatch, int]] = []
        for batch, found in zip(list(batches), response.responses[0].partition_responses, strict=True):
            duplicate = found.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            if found.error_code and not duplicate:
                failed.append((batch, found.error_code))
                continue
            batches.remove(batch)
            self._last[batch.partition] = batch
            for index, send in enumerate(batch.sends):
                send.acknowledged(-1 if duplicate or found.base_offset < 0 else found.base_offset + index)
            self._cluster.world.logger.debug(
                "acknowledged",
                partition=batch.partition,
                sequence=batch.sequence,
                records=len(batch.sends),
                offset=found.base_offset,
            )
        for batch, code in failed:
            _check(code, f"{self.name} sent sequence {batch.sequence} to partition {batch.partition}")
        self._unsettled.popleft()
        self._settled.set()
        self._settled = trio.Event()


class SimulatedConsumer:
    """Reads one partition from its start, with long polls."""

    def __init__(self, cluster: WireCluster, topic: str, partition: int, history: LogHistory, *, name: str) -> None:
        self.name = name
        self.position = 0
        self.batches = 0
        """The batches read so far."""
        self.batches_bytes = 0
        self._log_start = 0
        """The start of the log, as far as this consumer has noticed."""
        self.of_shadow = False
        """Whether a shadow is read: after a failover, its new broker may lag behind the high watermark shown before."""
        self._leader_epoch = -1
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._history = history

    async def run(self) -> None:
        """Reads into the history until cancelled."""
        while True:
            connection: WireConnection | None = None
            try:
                connection = await self._cluster.leader(self._topic, self._partition)
                while True:
                    for offset, value in await self._fetch(connection, wait_ms=500):
                        self._history.polled(self.name, offset, value)
            except Unreachable:
                await self._cluster.world.clock.sleep(RETRY_SECONDS)
            if connection is not None:
                connection.close()

    async def read_all(self) -> list[tuple[int, bytes]]:
        """All records from the log's start to its current end; retried until it succeeds.

        Records that were deleted while others were read are left out.
        """
        while True:
            connection: WireConnection | None = None
            try:
                connection = await self._cluster.leader(self._topic, self._partition)
                return await self._read_between(
                    connection, await self.offset(connection, EARLIEST), await self.offset(connection, LATEST)
                )
            except Unreachable:
                await self._cluster.world.clock.sleep(RETRY_SECONDS)
            finally:
                if connection is not None:
                    connection.close()

    async def _read_between(self, connection: WireConnection, start: int, end: int) -> list[tuple[int, bytes]]:
        records: list[tuple[int, bytes]] = []
        self.position, self.batches, self.batches_bytes, self._leader_epoch = start, 0, 0, -1
        self._log_start = start
        while self.position < end:
            records += await self._fetch(connection, wait_ms=500)
        return [record for record in records if record[0] >= self._log_start]

    async def offset(self, connection: WireConnection, timestamp: int) -> int:
        """The log's start (EARLIEST) or high watermark (LATEST).

        Raises:
            Unreachable: no answer, or an error after which a retry may help.
        """
        partition = ListOffsetsPartition(partition_index=self._partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=self._topic, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = await connection.request(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        found = response.topics[0].partitions[0]
        _check(found.error_code, f"{self.name} asked for offset {timestamp}")
        return found.offset

    async def _fetch(self, connection: WireConnection, wait_ms: int) -> list[tuple[int, bytes]]:
        """Fetches the next records and moves the position past them."""
        partition = FetchPartition(partition=self._partition, fetch_offset=self.position, partition_max_bytes=1_048_576)
        topic = FetchTopic(topic=self._topic, partitions=[partition])
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=4_194_304, topics=[topic])
        response = await connection.request(request, FETCH_VERSION, FetchResponse)
        _check(response.error_code, f"{self.name} fetched")
        if not response.responses:
            return []
        found = response.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await self.offset(connection, EARLIEST)
            if self.position < start:
                self.position = self._log_start = start
                return []
        _check(found.error_code, f"{self.name} fetched from offset {self.position}")
        return self._take(found)

    def _take(self, found: PartitionData) -> list[tuple[int, bytes]]:
        """The records from the position on; the first batch may begin before it, and the last one may be truncated."""
        view = memoryview(found.records or b"")
        records = []
        at = 0
        while len(view) - at >= HEADER_BYTES and len(view) - at >= 12 + int.from_bytes(view[at + 8 : at + 12], "big"):
            header = parse_batch(view, at)
            if header.partition_leader_epoch < self._leader_epoch and header.base_offset >= self.position:
                raise ProduceRefused(
                    f"{self.name} read epoch {header.partition_leader_epoch} after {self._leader_epoch}"
                )
            self._leader_epoch = header.partition_leader_epoch
            self.batches += 1
            self.batches_bytes += header.size_bytes
            for record in iterate_records(view[at : at + header.size_bytes], BATCH_BYTES_MAX):
                offset = header.base_offset + record.offset_delta
                if offset >= self.position and not header.is_control:
                    records.append((offset, record.value or b""))
            self.position = max(self.position, header.next_offset)
            at += header.size_bytes
        if found.high_watermark < self.position and (records or not self.of_shadow):
            raise ProduceRefused(
                f"{self.name} read up to {self.position}, beyond high watermark {found.high_watermark}"
            )
        return records
