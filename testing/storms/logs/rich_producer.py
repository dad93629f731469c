"""A producer that uses all that the protocol offers: epochs, sequences that wrap, odd times, every codec, any size.

1. Up to BATCHES_REMEMBERED batches are sent at once. After a failure those that were not acknowledged are sent again,
   in order, on a new connection: each is in the log once.
2. A producer that has no history at a broker may begin at any sequence; 0 follows 2^31 - 1.
3. After a producer has used a newer epoch, a batch of an older one is refused.
4. A repeat of the last batch gets the offset of the first copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.log_checker import Send
from gnomon.testing.storms.kafka.log_clients import (
    BATCHES_REMEMBERED,
    INIT_PRODUCER_ID_VERSION,
    PRODUCE_VERSION,
    RETRY_SECONDS,
    ProduceRefused,
)
from gnomon.testing.storms.kafka.storm_clients import ask_until, expect
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.testing.storms.logs.log_truth import LogTruth
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gnomon.wire.kafka.records import Record, build_batch

if TYPE_CHECKING:
    from random import Random

NO_ID = -1
SEQUENCES = 1 << 31
BUMP_RATE, REPEAT_RATE = 0.12, 0.2
LARGE_RATE = 0.02
LARGE_BYTES = 20_000
"""More than a commit group of a bookie takes in most seeds."""
SIZES = (0, 1, 20, 100, 800)
OLD_MS, FUTURE_MS = 10**11, 20 * 60 * 1000
"""Brokers accept timestamps up to an hour in the future, and clocks differ by up to half an hour."""
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@dataclass(slots=True)
class RichBatch:
    """One batch, and its records."""

    data: bytes
    sends: list[Send]


class RichProducer:
    """Writes to one partition.

    Args:
        truth: of the partition.
        name: unique among all producers of the partition.
    """

    def __init__(
        self, cluster: WireCluster, topic: str, partition: int, truth: LogTruth, name: str, stream: Random
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._truth = truth
        self._name = name
        self._stream = stream
        self._clock = cluster.world.clock
        self._logger = cluster.world.logger
        self._id = self._epoch = NO_ID
        self._sequence = 0
        self._old: tuple[int, int] | None = None
        """The last epoch and the next sequence of it, until it was shown to be refused."""
        self._sent = 0

    async def run(self, seconds: float, rounds_a_second: float) -> None:
        """Writes for `seconds`; all batches are acknowledged at the end.

        Raises:
            ProduceRefused: a rule does not hold.
        """
        end = self._clock.monotonic() + seconds
        await self._begin()
        while self._clock.monotonic() < end:
            await self._send([self._batch() for _ in range(self._stream.randint(1, BATCHES_REMEMBERED))])
            if self._stream.random() < BUMP_RATE:
                await self._bump()
            await self._clock.sleep(self._stream.expovariate(rounds_a_second))

    async def _begin(self) -> None:
        """Gets a new producer id, and begins near the last sequence at times."""
        found = await self._initialized(NO_ID, NO_ID)
        self._id, self._epoch = found.producer_id, found.producer_epoch
        self._sequence = self._stream.choice([0, SEQUENCES - 1, SEQUENCES - self._stream.randint(2, 60)])
        self._old = None

    async def _initialized(self, producer_id: int, epoch: int) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch)

        async def ask(connection: WireConnection) -> InitProducerIdResponse:
            found = await connection.request(request, INIT_PRODUCER_ID_VERSION, InitProducerIdResponse)
            expect(found.error_code, f"{self._name} asked for a producer id")
            return found

        return (await ask_until(self._cluster, ask))[0]

    async def _bump(self) -> None:
        """Begins a newer epoch, as a client does by itself, or asks for one."""
        before = (self._id, self._epoch)
        if self._stream.random() < 0.5:
            self._old = self._epoch, self._sequence
            self._epoch, self._sequence = self._epoch + 1, 0
            self._logger.debug("epoch_bumped", epoch=self._epoch)
            return
        found = await self._initialized(*before)
        given = (found.producer_id, found.producer_epoch)
        if given[0] == before[0] and given[1] <= before[1]:
            raise ProduceRefused(f"{self._name} asked for a newer epoch than {before}, and got {given}")
        self._id, self._epoch = given
        self._sequence, self._old = 0, None

    # Batches

    def _batch(self) -> RichBatch:
        stream = self._stream
        if stream.random() < LARGE_RATE:
            sizes, codec = [LARGE_BYTES], Codec.NONE
        else:
            sizes = [stream.choice(SIZES) for _ in range(stream.choice([1, 1, 2, 5, 40]))]
            codec = stream.choice(list(Codec))
        times = self._times(len(sizes))
        values = [self._value(size) for size in sizes]
        sends = [self._truth.send(self._name, value, time, codec) for value, time in zip(values, times, strict=True)]
        data = self._built(values, times, codec, self._epoch, self._sequence)
        if self._sequence + len(values) > SEQUENCES:
            self._logger.debug("sequence_wrapped", first=self._sequence)
        self._sequence = (self._sequence + len(values)) % SEQUENCES
        return RichBatch(data, sends)

    def _built(self, values: Sequence[bytes], times: Sequence[int], codec: Codec, epoch: int, sequence: int) -> bytes:
        records = [
            Record(index, timestamp_delta=time - times[0], value=value)
            for index, (value, time) in enumerate(zip(values, times, strict=True))
        ]
        return build_batch(
            records,
            base_timestamp=times[0],
            producer_id=self._id,
            producer_epoch=epoch,
            base_sequence=sequence,
            compression=codec,
        )

    def _value(self, size: int) -> bytes:
        """A value of at least this size that no other record of the partition has."""
        self._sent += 1
        if size <= 1 and self._sent < 256 and self._name.endswith("/0"):
            return bytes([self._sent])
        return f"{self._name}/{self._sent}".encode().ljust(size, b".")

    def _times(self, count: int) -> list[int]:
        now, stream = self._clock.wall_ms(), self._stream
        first = stream.choice([now, now, now - OLD_MS, now + FUTURE_MS, 0, now - stream.randrange(60_000)])
        step = stream.choice([0, 1, -1, 1000, -1000])
        return [max(0, first + index * step) for index in range(count)]

    # Requests

    async def _send(self, batches: list[RichBatch]) -> None:
        """Sends batches until all are acknowledged, and the last one again at times."""
        left = list(batches)
        while left:
            connection: WireConnection | None = None
            try:
                connection = await self._cluster.leader(self._topic, self._partition)
                await self._try(connection, left)
                if len(batches) < BATCHES_REMEMBERED and self._stream.random() < REPEAT_RATE:
                    await self._repeat(connection, batches[-1])
                if self._old is not None:
                    await self._send_old(connection, *self._old)
            except Unreachable:
                await self._clock.sleep(RETRY_SECONDS)
            finally:
                if connection is not None:
                    connection.close()

    async def _try(self, connection: WireConnection, left: list[RichBatch]) -> None:
        answers = [connection.send(self._request(batch.data), PRODUCE_VERSION) for batch in left]
        for answer in answers:
            response = await connection.wait(answer)
            assert isinstance(response, ProduceResponse)
            found = response.responses[0].partition_responses[0]
            again = expect(found.error_code, f"batch of {self._name}", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
            self._truth.acknowledged(left.pop(0).sends, -1 if again else found.base_offset, found.log_append_time_ms)

    async def _repeat(self, connection: WireConnection, batch: RichBatch) -> None:
        found = await self._produced(connection, batch.data)
        if found.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return
        expect(found.error_code, f"repeat of a batch of {self._name}")
        first = batch.sends[0].offset
        if min(found.base_offset, first) >= 0 and found.base_offset != first:
            raise ProduceRefused(f"{self._name}: the batch at {first} was repeated and got {found.base_offset}")

    async def _send_old(self, connection: WireConnection, epoch: int, sequence: int) -> None:
        """Sends a batch of the epoch before the present one, in which a batch was acknowledged."""
        value, time = self._value(20), self._clock.wall_ms()
        self._truth.send(self._name, value, time, Codec.NONE).failed()
        found = await self._produced(connection, self._built([value], [time], Codec.NONE, epoch, sequence))
        if found.error_code == ErrorCode.NONE:
            raise ProduceRefused(f"{self._name}: a batch of epoch {epoch} was appended after epoch {self._epoch}")
        expect(found.error_code, f"batch of an older epoch of {self._name}", *FENCED)
        self._old = None
        self._logger.debug("old_epoch_fenced", epoch=epoch)

    async def _produced(self, connection: WireConnection, data: bytes) -> PartitionProduceResponse:
        response = await connection.request(self._request(data), PRODUCE_VERSION, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def _request(self, data: bytes) -> ProduceRequest:
        part = PartitionProduceData(index=self._partition, records=data)
        topic = TopicProduceData(name=self._topic, partition_data=[part])
        return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
