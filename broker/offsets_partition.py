"""The partitions of `__consumer_offsets` as the group coordinator uses them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio

from gnomon.bookie.ledger import LocalViews, read_from_memory
from gnomon.broker.errors import KafkaError
from gnomon.broker.groups.offsets_log import AppendDone
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.chain import written_partitions
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.partition import Partition
from gnomon.broker.topics import OFFSETS_TOPIC
from gnomon.metadata.client import MetadataError
from gnomon.runtime.world import WorldError
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

READ_BYTES = 1 << 20
RECORDS_BYTES_MAX = 256 << 20
RECORDS_PER_TURN = 200
"""To read and take over one is some 15 µs: a long log leaves the others their turn."""


class PartitionOffsetsLog:
    """`groups.offsets_log.OffsetsLog` over a partition of the broker."""

    def __init__(self, broker: Broker, partition: Partition, nursery: trio.Nursery) -> None:
        self._broker = broker
        self._partition = partition
        self._nursery = nursery
        self._read: PartitionLog | None = None
        """The log that was read: what was made of it may be appended to no other."""

    async def read_all(self) -> AsyncGenerator[tuple[int, bytes, bytes | None], None]:
        """See `OffsetsLog.read_all`."""
        log = await self._partition.opened_to_write()
        if log is None:
            raise KafkaError(self._partition.failure or ErrorCode.NOT_COORDINATOR, "the partition could not be opened")
        self._read = log
        position, end = log.start_offset, log.high_watermark
        count = 0

        def read() -> tuple[list[bytes], ErrorCode]:
            if self._partition.log is not log:
                code = self._partition.failure or ErrorCode.NOT_LEADER_OR_FOLLOWER
                raise KafkaError(code, "the partition was taken over while it was read")
            with LocalViews() as views:
                chunks, _, code = self._partition.read(position, READ_BYTES, True, views)
                return [bytes(chunk) for chunk in chunks], code

        while position < end:
            batches, code = await read_from_memory(read)
            if code != ErrorCode.NONE or not batches:
                raise KafkaError(code, f"the partition could not be read at offset {position}")
            for batch in batches:
                header = parse_batch(memoryview(batch))
                for record in iterate_records(memoryview(batch), RECORDS_BYTES_MAX):
                    yield header.base_offset + record.offset_delta, record.key or b"", record.value
                    count += 1
                    if count % RECORDS_PER_TURN == 0:
                        await trio.lowlevel.checkpoint()
                position = Offset(header.next_offset)

    def append(self, records: Sequence[tuple[bytes, bytes | None]], done: AppendDone) -> None:
        """See `OffsetsLog.append`."""
        clock, timers = self._broker.world.clock, self._broker.timers
        batch = build_batch(
            [Record(offset_delta=index, key=key, value=value) for index, (key, value) in enumerate(records)],
            base_timestamp=clock.wall_ms(),
        )
        answer = AppendReport(done, lambda report: timers.call_at(clock.monotonic(), report))
        if self.goes_on():
            self._partition.append(memoryview(batch), answer, 0)
        else:
            answer.appended(0, _NOT_READ)
        answer.within_append = False

    def confirm(self, done: Callable[[bool], None]) -> None:
        """See `OffsetsLog.confirm`."""
        if self.goes_on():
            self._partition.confirm(done)
        else:
            done(False)

    def goes_on(self) -> bool:
        """See `OffsetsLog.goes_on`."""
        return self._read is not None and self._partition.goes_on(self._read)

    def trim(self, before_offset: int) -> None:
        """See `OffsetsLog.trim`."""
        self._nursery.start_soon(self._trim, Offset(before_offset))

    async def _trim(self, before_offset: Offset) -> None:
        try:
            if await self._partition.opened() is not None:
                await self._partition.delete_before(before_offset)
        except KafkaError as error:
            self._broker.log.warning("offsets_not_trimmed", reason=error.text)


_NOT_READ = Produced.refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is not open, or was opened again: read it anew"
)


class AppendReport:
    """Turns the outcome of an append into `AppendDone`, later where it comes while the append is being asked for."""

    def __init__(self, done: AppendDone, later: Callable[[Callable[[], None]], object]) -> None:
        self.within_append = True
        self._done = done
        self._later = later

    def appended(self, slot: Any, outcome: Produced) -> None:
        """See `Appender.appended`."""
        if self.within_append:
            self._later(lambda: self._report(outcome))
        else:
            self._report(outcome)

    def _report(self, outcome: Produced) -> None:
        if outcome.error == ErrorCode.NONE:
            self._done(outcome.base_offset, None)
        else:
            self._done(None, KafkaError(outcome.error, outcome.text or outcome.error.name))


@contextmanager
def _refusals() -> Iterator[None]:
    """What the metadata service or the disk cannot do now is refused to those who ask; it must not end the node."""
    try:
        yield
    except (MetadataError, WorldError) as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


class BrokerOffsetsLogs:
    """`groups.offsets_log.OffsetsLogs` of one broker."""

    def __init__(self, broker: Broker, nursery: trio.Nursery) -> None:
        self._broker = broker
        self._nursery = nursery

    async def open(self, partition: int) -> PartitionOffsetsLog:
        """See `OffsetsLogs.open`."""
        with _refusals():
            topic = await self._broker.topic_admin.offsets_topic()
        self._broker.check_lease()
        return PartitionOffsetsLog(self._broker, self._broker.partitions.use(topic, partition), self._nursery)

    async def used(self) -> Sequence[int]:
        """See `OffsetsLogs.used`: the partitions that have a ledger, by one metadata read."""
        topic = self._broker.image.get(OFFSETS_TOPIC)
        if topic is None:
            return []
        with _refusals():
            return await written_partitions(self._broker.metadata, topic.id)
