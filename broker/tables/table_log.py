"""The log of a partition as its table reads it: durable batches, and their changes.

1. Only durable batches are read.
2. No record is passed over: if the log was trimmed beyond the offset that is read next, that is an error. A shadow may
   learn of a trim later than the storage: it then finds a later batch at that offset.
3. The identity of a batch is its place in storage with its CRC. A log that was restored, or is another life of its
   topic, has another batch there.
"""

from __future__ import annotations

from typing import Final

import msgpack

from gnomon.bookie.ledgers.catalog import LocalViews, read_from_memory
from gnomon.broker.partition.readable import Readable
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.partition.unpacking.recoding import AT_ONCE_BYTES_MAX, RECODED_BYTES_MAX
from gnomon.broker.tables.table_state import AppliedBatch
from gnomon.client.errors import Compacted
from gnomon.log.entry import Offset
from gnomon.log.log_positions import LogPositions
from gnomon.log.log_reader import LogBounds
from gnomon.log.tables.changes import KeyChange, TableChanges, changes_of
from gnomon.wire.kafka.batch import BatchHeader, parse_batch
from gnomon.wire.kafka.compression import UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode

READ_BYTES: Final = 1 << 20
WATCHED_BYTES: Final = 64 << 10
"""A watch that follows the log reads this much at a time."""
RECORDS_AT_ONCE_MAX: Final = 500
"""Reading and applying as many takes some 2 ms."""


class LogUnreadable(Exception):
    """The log of a table cannot be read at some offset."""


class TableLog:
    """The log of one partition."""

    def __init__(self, partition: Readable, batch_thread: BatchThread) -> None:
        self._partition = partition
        self._batch_thread = batch_thread

    async def batches(self, log: LogBounds, offset: Offset) -> list[bytes]:
        """Some durable batches from the one at `offset` on; none if the partition was opened again.

        Raises:
            LogUnreadable, LedgerError: they cannot be read, or are trimmed.
        """
        try:
            return await self._batches(log, offset, READ_BYTES)
        except Compacted as error:
            raise LogUnreadable(f"the log was trimmed to offset {error.first}, and {offset} comes next") from error

    async def _batches(self, log: LogBounds, offset: Offset, bytes_max: int) -> list[bytes]:
        """The durable batches from the one that covers `offset` on; none if the partition was opened again.

        Raises:
            Compacted: the log begins after the offset.
            LogUnreadable, LedgerError: they cannot be read.
        """
        if offset < log.start_offset:
            raise Compacted(log.start_offset)

        def read() -> list[bytes]:
            if self._partition.log is not log:
                return []
            with LocalViews() as views:
                chunks, _, code = self._partition.read(offset, bytes_max, True, views)
                if code != ErrorCode.NONE:
                    raise LogUnreadable(f"the log could not be read at offset {offset}: {code.name}")
                return [bytes(chunk) for chunk in chunks]

        batches = await read_from_memory(read)
        first = parse_batch(memoryview(batches[0])).base_offset if batches else offset
        if first > offset:
            raise Compacted(first)
        return batches

    async def changes_of(self, batch: bytes, header: BatchHeader) -> TableChanges:
        """The changes of a batch; those of a long one are decoded in a thread.

        Raises:
            BatchRejected, UnpackedTooLarge: it is no batch for a table.
        """
        view = memoryview(batch)
        if header.records_count <= RECORDS_AT_ONCE_MAX and len(batch) <= AT_ONCE_BYTES_MAX:
            try:
                return changes_of(view, header, AT_ONCE_BYTES_MAX)
            except UnpackedTooLarge:
                pass
        thread = self._batch_thread.work_for_broker
        return await thread(view, RECODED_BYTES_MAX, lambda batch, room: changes_of(batch, header, room))

    async def changes_from(self, offset: Offset) -> list[AppliedBatch]:
        """A few durable batches from the one at an offset on; none if there are none yet.

        Raises:
            Compacted: the log begins after the offset.
            LogUnreadable, LedgerError: it cannot be read.
        """
        log = self._partition.log
        if log is None or offset >= log.high_watermark:
            return []
        found = []
        for batch in await self._batches(log, offset, WATCHED_BYTES):
            header = parse_batch(memoryview(batch))
            found.append(AppliedBatch(Offset(header.base_offset), (await self.changes_of(batch, header)).changes))
        return found

    async def changes_at(self, base_offset: int) -> list[KeyChange]:
        """The changes of the durable batch at an offset.

        Raises:
            Compacted: the log begins after the offset.
            LogUnreadable, LedgerError: it cannot be read.
        """
        log = self._partition.log
        batches = [] if log is None else await self._batches(log, Offset(base_offset), 1)
        if log is None or not batches:
            raise LogUnreadable("the partition was opened again")
        header = parse_batch(memoryview(batches[0]))
        if header.base_offset != base_offset:
            raise LogUnreadable(f"no batch begins at offset {base_offset}, but one at {header.base_offset}")
        return list((await self.changes_of(batches[0], header)).changes)

    async def identity_before(self, end: Offset) -> bytes | None:
        """The identity of the durable batch with the record before `end`; None if the log does not have it now.

        Raises:
            LedgerError: it cannot be read.
        """
        partition = self._partition

        def read() -> bytes | None:
            log = partition.log
            if log is None or not log.start_offset < end <= log.high_watermark:
                return None
            with LocalViews() as views:
                batch = LogPositions(log, partition).batch(Offset(end - 1), views)
                if batch.base_offset >= end:  # the one that was asked for is trimmed
                    return None
                place = (batch.segment, batch.entry, batch.base_offset, batch.next_offset)
                packed: bytes = msgpack.packb([*place, parse_batch(batch.records).crc])
                return packed

        return await read_from_memory(read)
