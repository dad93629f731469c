"""An idempotent producer and a consumer for simulations, which write down what they are told (see `log_checker`).

    producer = SimulatedProducer(cluster, "orders", 0, history, name="producer-1")
    consumer = SimulatedConsumer(cluster, "orders", 0, history, name="consumer-1")
    nursery.start_soon(producer.run)
    nursery.start_soon(consumer.run)
    producer.send(b"unique value")
    await producer.flush()                             # all acknowledged, however often it took
    history.final = await consumer.read_all()          # after healing

1. A batch keeps its producer id and sequence through every retry, so that nothing is doubled.
2. Batches are in flight in order, up to `in_flight_max`; after any failure all that are not acknowledged go again,
   in order, on a new connection, while the old requests may still be on their way.
3. A send is unknown until it is acknowledged. An error that is not retriable is a finding, not an outcome: the
   sequence of an oldest batch that is refused shows that the broker forgot something.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import trio

from gnomon.runtime.world import Unreachable
from gnomon.testing.log_checker import LogHistory, Send
from gnomon.testing.wire_client import Answer, KafkaCluster, KafkaConnection
from gnomon.wire.kafka.batch import HEADER_BYTES, parse_batch
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
BATCH_BYTES_MAX = 64 * 1024 * 1024


class Refused(AssertionError):
    """The broker gave an answer that a correct one does not give to these clients."""


def _check(code: int, what: str) -> None:
    """Raises Unreachable where a retry may help, Refused where not."""
    error = ErrorCode(code)
    if error.retriable:
        raise Unreachable(f"{what}: {error.name}")
    if error is not ErrorCode.NONE:
        raise Refused(f"{what}: {error.name}: {error.text}")


@dataclass(slots=True)
class _Batch:
    sequence: int
    sends: list[Send]
    data: bytes


class SimulatedProducer:
    """Sends to one partition, idempotently, for ever."""

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        partition: int,
        history: LogHistory,
        *,
        name: str,
        in_flight_max: int = 5,
        batch_records_max: int = 20,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._history = history
        self._in_flight_max = in_flight_max
        self._batch_records_max = batch_records_max
        self._waiting: deque[Send] = deque()
        self._unsettled: deque[_Batch] = deque()
        self._producer: tuple[int, int] | None = None
        self._sequence = 0
        self._wake = trio.Event()
        self._settled = trio.Event()

    def send(self, value: bytes) -> Send:
        """Queues a record; the value has to be unique in its history."""
        send = self._history.send(self.name, value)
        self._waiting.append(send)
        self._wake.set()
        return send

    async def flush(self) -> None:
        """Waits until everything sent so far, and what comes meanwhile, is acknowledged."""
        while self._waiting or self._unsettled:
            await self._settled.wait()

    async def run(self) -> None:
        """Connects and sends until cancelled."""
        clock = self._cluster.world.clock
        while True:
            connection: KafkaConnection | None = None
            try:
                connection = await self._cluster.leader(self._topic, self._partition)
                await self._identify(connection)
                await self._flow(connection)
            except Unreachable:
                await clock.sleep(RETRY_SECONDS)
            if connection is not None:
                connection.close()

    async def _identify(self, connection: KafkaConnection) -> None:
        if self._producer is None:
            request = InitProducerIdRequest(transaction_timeout_ms=60_000)
            found = await connection.request(request, INIT_PRODUCER_ID_VERSION, InitProducerIdResponse)
            _check(found.error_code, f"{self.name} asked for a producer id")
            self._producer = (found.producer_id, found.producer_epoch)

    async def _flow(self, connection: KafkaConnection) -> None:
        """Keeps batches in flight until something fails."""
        in_flight: deque[Answer] = deque()
        while True:
            while len(in_flight) < self._in_flight_max:
                if len(in_flight) == len(self._unsettled) and not self._form_batch():
                    break
                batch = self._unsettled[len(in_flight)]
                in_flight.append(connection.send(self._request(batch), PRODUCE_VERSION))
            if in_flight:
                answer = await connection.wait(in_flight[0])
                assert isinstance(answer, ProduceResponse)
                self._settle(answer)
                in_flight.popleft()
            else:
                self._wake = trio.Event()
                await self._wake.wait()

    def _form_batch(self) -> bool:
        if not self._waiting:
            return False
        count = min(len(self._waiting), self._batch_records_max)
        sends = [self._waiting.popleft() for _ in range(count)]
        assert self._producer is not None
        data = build_batch(
            [Record(offset_delta=index, value=send.value) for index, send in enumerate(sends)],
            base_timestamp=self._cluster.world.clock.wall_ms(),
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequence,
        )
        self._unsettled.append(_Batch(self._sequence, sends, data))
        self._sequence += count
        return True

    def _request(self, batch: _Batch) -> ProduceRequest:
        partition = PartitionProduceData(index=self._partition, records=batch.data)
        topic = TopicProduceData(name=self._topic, partition_data=[partition])
        return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])

    def _settle(self, response: ProduceResponse) -> None:
        batch = self._unsettled[0]
        partition = response.responses[0].partition_responses[0]
        duplicate = partition.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if not duplicate:
            _check(partition.error_code, f"{self.name} sent sequence {batch.sequence}")
        self._unsettled.popleft()
        for index, send in enumerate(batch.sends):
            send.acknowledged(-1 if duplicate or partition.base_offset < 0 else partition.base_offset + index)
        self._settled.set()
        self._settled = trio.Event()


class SimulatedConsumer:
    """Reads one partition from its start, with long polls."""

    def __init__(self, cluster: KafkaCluster, topic: str, partition: int, history: LogHistory, *, name: str) -> None:
        self.name = name
        self.position = 0
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._history = history

    async def run(self) -> None:
        """Reads into the history until cancelled."""
        while True:
            connection: KafkaConnection | None = None
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
        """Everything from the log's start to its present end, tried until it succeeds."""
        while True:
            connection: KafkaConnection | None = None
            try:
                connection = await self._cluster.leader(self._topic, self._partition)
                return await self._read_between(
                    connection, await self._offset(connection, EARLIEST), await self._offset(connection, LATEST)
                )
            except Unreachable:
                await self._cluster.world.clock.sleep(RETRY_SECONDS)
            finally:
                if connection is not None:
                    connection.close()

    async def _read_between(self, connection: KafkaConnection, start: int, end: int) -> list[tuple[int, bytes]]:
        records: list[tuple[int, bytes]] = []
        reader = SimulatedConsumer(self._cluster, self._topic, self._partition, self._history, name=self.name)
        reader.position = start
        while reader.position < end:
            records += await reader._fetch(connection, wait_ms=500)
        return records

    async def _offset(self, connection: KafkaConnection, timestamp: int) -> int:
        partition = ListOffsetsPartition(partition_index=self._partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=self._topic, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = await connection.request(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        found = response.topics[0].partitions[0]
        _check(found.error_code, f"{self.name} asked for offset {timestamp}")
        return found.offset

    async def _fetch(self, connection: KafkaConnection, wait_ms: int) -> list[tuple[int, bytes]]:
        """The next records; moves the position past them."""
        partition = FetchPartition(partition=self._partition, fetch_offset=self.position, partition_max_bytes=1_048_576)
        topic = FetchTopic(topic=self._topic, partitions=[partition])
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=4_194_304, topics=[topic])
        response = await connection.request(request, FETCH_VERSION, FetchResponse)
        _check(response.error_code, f"{self.name} fetched")
        if not response.responses:
            return []
        found = response.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.position < found.log_start_offset:
            self.position = found.log_start_offset
            return []
        _check(found.error_code, f"{self.name} fetched from offset {self.position}")
        return self._take(found)

    def _take(self, found: PartitionData) -> list[tuple[int, bytes]]:
        """The records from the position on; a batch may begin before it, and the last one may be cut short."""
        view = memoryview(found.records or b"")
        records = []
        at = 0
        while len(view) - at >= HEADER_BYTES and len(view) - at >= 12 + int.from_bytes(view[at + 8 : at + 12], "big"):
            header = parse_batch(view, at)
            for record in iterate_records(view[at : at + header.size_bytes], BATCH_BYTES_MAX):
                offset = header.base_offset + record.offset_delta
                if offset >= self.position and not header.is_control:
                    records.append((offset, record.value or b""))
            self.position = max(self.position, header.next_offset)
            at += header.size_bytes
        if found.high_watermark < self.position:
            raise Refused(f"{self.name} read up to {self.position}, beyond high watermark {found.high_watermark}")
        return records
