"""The partitions of a topic as logs of state machines (`coordination.state_log`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from gnomon.bookie.ledgers.catalog import LocalViews, read_from_memory
from gnomon.broker.coordination.state_log import AppendDone, LogUnavailable, NotLogLeader
from gnomon.broker.coordination.state_machine import Encoded, StoredRecord
from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.unpacking.batch_client import BROKER_ITSELF, BatchClient
from gnomon.log.chains import written_partitions
from gnomon.log.entry import Offset
from gnomon.log.topic import Topic
from gnomon.metadata.client import Metadata, MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock, WorldError
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch, iterate_records

READ_BYTES = 1 << 20
RECORDS_BYTES_MAX = 256 << 20
RECORDS_PER_TURN = 200
"""Records after which the reader yields to other tasks: reading and replaying one takes some 15 µs."""


def log_error(code: ErrorCode, text: str) -> LogUnavailable:
    """The error of a state log for the error of its partition."""
    return NotLogLeader(text) if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else LogUnavailable(text)


@contextmanager
def _log_errors() -> Iterator[None]:
    """A metadata service or a disk that fails is an unavailable log; it must not end the node."""
    try:
        yield
    except KafkaError as error:
        raise log_error(error.code, error.text) from error
    except (MetadataError, WorldError) as error:
        raise LogUnavailable(str(error)) from error


class PartitionStateLog:
    """One partition as a `StateLog`.

    Args:
        partition: led by this broker.
        clock: of the world.
        timers: of the node, running.
        tasks: holds the trims.
        logger: of the partition.
    """

    def __init__(self, partition: Partition, clock: Clock, timers: Timers, tasks: Tasks, logger: Logger) -> None:
        self._partition = partition
        self._clock = clock
        self._timers = timers
        self._tasks = tasks
        self._logger = logger
        self._read: PartitionLog | None = None
        """The log that was read. Records that depend on it are appended to no other log."""

    async def read_all(self) -> AsyncGenerator[StoredRecord, None]:
        """See `StateLog.read_all`."""
        log = await self._partition.opened_to_write()
        if log is None or not self._partition.goes_on(log):  # a machine that cannot append would be given up at once
            code = self._partition.failure or ErrorCode.KAFKA_STORAGE_ERROR
            raise log_error(code, "the partition could not be opened to write")
        self._read = log
        position, end = log.start_offset, log.high_watermark
        count = 0
        while position < end:
            for batch in await self._read_batches(log, position):
                header = parse_batch(memoryview(batch))
                for record in iterate_records(memoryview(batch), RECORDS_BYTES_MAX):
                    yield StoredRecord(
                        record.key or b"", record.value, header.producer_id, header.producer_epoch, header.is_control
                    )
                    count += 1
                    if count % RECORDS_PER_TURN == 0:
                        await trio.lowlevel.checkpoint()
                position = Offset(header.next_offset)

    async def _read_batches(self, log: PartitionLog, position: Offset) -> list[bytes]:
        def read() -> tuple[list[bytes], ErrorCode]:
            if self._partition.log is not log:
                code = self._partition.failure or ErrorCode.NOT_LEADER_OR_FOLLOWER
                raise KafkaError(code, "the partition was taken over while it was read")
            with LocalViews() as views:
                chunks, _, code = self._partition.read(position, READ_BYTES, True, views)
                return [bytes(chunk) for chunk in chunks], code

        with _log_errors():
            batches, code = await read_from_memory(read)
        if code != ErrorCode.NONE or not batches:
            raise log_error(code, f"the partition could not be read at offset {position}")
        return batches

    def append(self, records: Sequence[Encoded], done: AppendDone) -> None:
        """See `StateLog.append`."""
        batch = build_batch(
            [Record(offset_delta=index, key=key, value=value) for index, (key, value) in enumerate(records)],
            base_timestamp=self._clock.wall_ms(),
        )
        report = AppendReport(done, lambda late: self._timers.call_at(self._clock.monotonic(), late))
        if self.goes_on():
            self._partition.append(memoryview(batch), report, 0)
        else:
            report.appended(0, _NOT_READ)
        report.within_append = False

    def confirm(self, done: Callable[[bool], None]) -> None:
        """See `StateLog.confirm`."""
        if self.goes_on():
            self._partition.confirm(done)
        else:
            done(False)

    def goes_on(self) -> bool:
        """See `StateLog.goes_on`."""
        return self._read is not None and self._partition.goes_on(self._read)

    def trim(self, before_offset: int) -> None:
        """See `StateLog.trim`."""
        self._tasks.start_soon(self._trim, Offset(before_offset))

    async def _trim(self, before_offset: Offset) -> None:
        try:
            if await self._partition.opened() is not None:
                await self._partition.delete_before(before_offset)
        except KafkaError as error:
            self._logger.warning("state_log_not_trimmed", reason=error.text)


_NOT_READ = Produced.refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is not open, or was opened again: read it again"
)


class AppendReport:
    """Turns the outcome of an append into `AppendDone`; later, if it comes from within the append itself."""

    def __init__(self, done: AppendDone, later: Callable[[Callable[[], None]], object]) -> None:
        self.within_append = True
        self._done = done
        self._later = later

    def client_of(self, slot: Any) -> BatchClient:
        """See `AppendCallback.client_of`."""
        return BROKER_ITSELF

    def appended(self, slot: Any, outcome: Produced) -> None:
        """See `AppendCallback.appended`."""
        if self.within_append:
            self._later(lambda: self._report(outcome))
        else:
            self._report(outcome)

    def _report(self, outcome: Produced) -> None:
        if outcome.error == ErrorCode.NONE:
            self._done(outcome.base_offset, None)
        else:
            self._done(None, log_error(outcome.error, outcome.text or outcome.error.name))


class PartitionStateLogs:
    """The partitions of one topic as `StateLogs`.

    Args:
        topic: finds the topic or creates it; raises KafkaError, MetadataError or WorldError.
        known_topic: the topic as this broker's image shows it, None if there is none.
        use: a partition that this broker leads; raises KafkaError.
        check_lease: raises KafkaError while another broker may lead what this one led.
        metadata: of the cluster.
        clock: of the world.
        timers: of the node, running.
        tasks: holds the trims.
        logger: of the node.
    """

    def __init__(
        self,
        topic: Callable[[], Awaitable[Topic]],
        known_topic: Callable[[], Topic | None],
        use: Callable[[Topic, int], Partition],
        check_lease: Callable[[], None],
        metadata: Metadata,
        clock: Clock,
        timers: Timers,
        tasks: Tasks,
        logger: Logger,
    ) -> None:
        self._topic = topic
        self._known_topic = known_topic
        self._use = use
        self._check_lease = check_lease
        self._metadata = metadata
        self._clock = clock
        self._timers = timers
        self._tasks = tasks
        self._logger = logger

    async def open(self, partition: int) -> PartitionStateLog:
        """See `StateLogs.open`."""
        with _log_errors():
            topic = await self._topic()
            self._check_lease()
            opened = self._use(topic, partition)
        logger = self._logger.bind(topic=topic.name, partition=partition)
        return PartitionStateLog(opened, self._clock, self._timers, self._tasks, logger)

    async def used(self) -> Sequence[int]:
        """See `StateLogs.used`: the partitions that have a ledger, by one metadata read."""
        topic = self._known_topic()
        if topic is None:
            return []
        with _log_errors():
            return await written_partitions(self._metadata, topic.id)
