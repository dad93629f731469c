"""What can be read of one partition: batches by offset, and where times, offsets and leader epochs lie.

1. Nothing at or above the high watermark is shown (`log` invariant 3).
2. Reading batches never waits: the ledgers' memory is looked at for as long as the caller's views live; what would
   have to be fetched ends with `NotInMemory`. Searches wait for that, and those by time for others to have their
   turn: what is appended meanwhile they may see or not.
3. A search names no offset below the start of the log, though the batch around it may begin there.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from operator import attrgetter
from typing import Protocol

import trio

from gnomon.bookie.errors import LedgerError, NotEnoughBookies
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledger import EntryView, LocalViews, NotInMemory, read_from_memory
from gnomon.broker.partition.entry import (
    HEADER_BYTES,
    NO_OFFSET,
    EntryHeader,
    EntryKind,
    LeaderEpoch,
    Offset,
    unpack_header,
)
from gnomon.broker.partition.segment import Segment
from gnomon.runtime.logs import Logger
from gnomon.wire.kafka.batch import MalformedBatch, parse_batch
from gnomon.wire.kafka.compression import CorruptData, TooLarge
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import find_by_timestamp

RECORDS_BYTES_MAX = 16 << 20
"""Most bytes that a search by time decompresses of one batch; and the most records it looks at: 0.1 s together."""
RECORDS_MAX = 100_000
ENTRIES_PER_TURN = 1000
"""A search leaves others their turn after so many headers, at some 3 us each, and after every batch it looked into."""

_BASE_OFFSET = attrgetter("base_offset")


class LogBounds(Protocol):
    """What reading needs of a log: where it begins and ends, and under which leader epoch."""

    @property
    def epoch(self) -> LeaderEpoch:
        """The current leader epoch."""

    @property
    def start_offset(self) -> Offset:
        """The first offset that is kept."""

    @property
    def high_watermark(self) -> Offset:
        """The end of what may be shown."""

    @property
    def next_offset(self) -> Offset:
        """Up to where a reader may have been told offsets; nobody can know any beyond."""


class LogReader:
    """The log of one partition and its segments, as far as they are known; whoever opens the chain sets both."""

    log: LogBounds | None
    """What can be read; None until opened."""

    def __init__(self, logger: Logger) -> None:
        self.log = None
        self.segments: list[Segment] = []
        self._logger = logger
        self._unreadable = ""

    def check_epoch(self, epoch: int) -> ErrorCode:
        """Judges the leader epoch that a client believes in; -1 = it does not say (KIP-320)."""
        log = self.log
        if epoch < 0 or log is None or epoch == log.epoch:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < log.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def segment_of(self, offset: Offset) -> int:
        """The place in `segments` of the one that `offset` lies in."""
        return bisect_right(self.segments, offset, 1, key=_BASE_OFFSET) - 1  # from 1 on: nothing lies before the first

    def read(
        self, offset: Offset, bytes_max: int, at_least_one: bool, views: LocalViews
    ) -> tuple[list[memoryview], int, ErrorCode]:
        """Durable batches of one segment from the one that covers `offset` on; views live as long as `views`.

        Those before a damaged one are given without an error; who asks for that one gets it, and the log says so once.

        Raises:
            NotInMemory: load the entry and ask again.
        """
        log = self.log
        assert log is not None
        segment = self.segments[self.segment_of(offset)]
        view = segment.view_among(views)
        try:
            chunks, size = segment.read(view, offset, log.high_watermark, bytes_max, at_least_one=at_least_one)
        except LedgerError as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                away = isinstance(error, NotEnoughBookies)
                self._logger.error(
                    "records_not_readable",
                    ledger=segment.ledger.name,
                    offset=offset,
                    reason=str(error),
                    next="start the bookies that are away"
                    if away
                    else "restore the data directory from a copy, or let consumers seek behind the damage",
                )
            return [], 0, ErrorCode.KAFKA_STORAGE_ERROR
        return chunks, size, ErrorCode.NONE

    async def earliest(self) -> tuple[Offset, LeaderEpoch]:
        """Where the log starts, and the leader epoch of the record there.

        Without records it is the current one, and -1, which Kafka's clients take for unknown, where that record is
        damaged.
        """
        log = self.log
        assert log is not None
        if log.start_offset == log.high_watermark:
            return log.start_offset, log.epoch
        start_offset, segment = log.start_offset, self.segments[self.segment_of(log.start_offset)]

        def first_header() -> EntryHeader:
            with segment.view() as view:
                return segment.header(view, segment.first_entry(view, lambda header: header.next_offset > start_offset))

        try:
            return start_offset, (await read_from_memory(first_header)).leader_epoch
        except LedgerError:
            return start_offset, LeaderEpoch(-1)

    async def offset_for_timestamp(self, timestamp: int) -> tuple[Offset, int, LeaderEpoch] | None:
        """The first record with a timestamp >= `timestamp`: its offset, timestamp and leader epoch."""
        log = self.log
        assert log is not None
        return await self._search_by_time(log, timestamp)

    async def _search_by_time(self, log: LogBounds, timestamp: int) -> tuple[Offset, int, LeaderEpoch] | None:
        """The same of a log that was open when it was asked for: it may be taken over while this searches."""
        for segment in list(self.segments):
            if segment.next_offset is not None and segment.max_timestamp < timestamp:
                continue
            found = await _find_timestamp(segment, timestamp, log)
            if found is not None:
                return found
        return None

    async def max_timestamp_offset(self) -> tuple[Offset, int, LeaderEpoch] | None:
        """The record with the largest timestamp (KIP-734)."""
        log = self.log
        assert log is not None
        best = -1
        for segment in list(self.segments):
            best = max(best, await self._largest_timestamp(segment, log.start_offset))
        return None if best < 0 else await self._search_by_time(log, best)

    async def _largest_timestamp(self, segment: Segment, start_offset: Offset) -> int:
        """The last header has that of the whole segment; where a part of it was given up, each batch is asked."""
        last = segment.ledger.last_add_confirmed

        def by_header() -> tuple[EntryId, int | None]:
            with segment.view() as view:
                entry = segment.first_entry(view, lambda header: header.next_offset > start_offset)
                whole = entry <= last and start_offset <= segment.base_offset
                return entry, segment.header(view, last).max_timestamp if whole else None

        def by_batches() -> tuple[int, EntryId]:
            with segment.view() as view:
                return segment.largest_timestamp(view, entry, EntryId(min(entry + ENTRIES_PER_TURN, last + 1)))

        entry, found = await read_from_memory(by_header)
        if found is not None:
            return found
        best = -1
        while entry <= last:
            largest, entry = await read_from_memory(by_batches)
            best = max(best, largest)
            await trio.lowlevel.checkpoint()
        return best

    async def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Where an epoch ended (KIP-279): the largest epoch <= `epoch` with records, and the offset after it.

        An epoch that is to come has no end yet: (-1, -1). One that is older than all records ended where they begin.
        """
        log = self.log
        assert log is not None
        if not 0 <= epoch <= log.epoch:
            return LeaderEpoch(-1), NO_OFFSET
        if epoch == log.epoch:
            return epoch, log.high_watermark
        for segment in reversed(list(self.segments)):  # of which some may go meanwhile
            found = await read_from_memory(partial(_end_of_epoch, segment, epoch))
            if found is not None:
                return found[0], Offset(min(found[1], log.high_watermark))
        return epoch, log.start_offset


def _end_of_epoch(segment: Segment, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
    with segment.view() as view:
        return segment.end_of_epoch(view, epoch)


async def _find_timestamp(segment: Segment, timestamp: int, log: LogBounds) -> tuple[Offset, int, LeaderEpoch] | None:
    def first_entry() -> EntryId:
        with segment.view() as view:
            return segment.first_entry(view, lambda header: header.max_timestamp >= timestamp)

    def search() -> tuple[EntryId, tuple[Offset, int, LeaderEpoch] | None]:
        with segment.view() as view:
            return _search(segment, view, entry, timestamp, log)

    entry = await read_from_memory(first_entry)
    while entry <= segment.ledger.last_add_confirmed:
        entry, found = await read_from_memory(search)
        await trio.lowlevel.checkpoint()
        if found is not None:
            return found
    return None


def _search(
    segment: Segment, view: EntryView, entry: EntryId, timestamp: int, log: LogBounds
) -> tuple[EntryId, tuple[Offset, int, LeaderEpoch] | None]:
    """Looks at the next headers, and into one batch at most: where to go on, and what was found."""
    last = segment.ledger.last_add_confirmed
    for number in range(entry, min(entry + ENTRIES_PER_TURN, last + 1)):
        try:
            payload = view.payload(EntryId(number))
        except NotInMemory:
            if number == entry:
                raise
            return EntryId(number), None
        header, batch = unpack_header(payload), payload[HEADER_BYTES:]
        if header.kind != EntryKind.BATCH or header.next_offset <= log.start_offset:
            continue
        if parse_batch(batch).max_timestamp >= timestamp:
            found = _find_in_batch(batch, timestamp, log.start_offset)
            if found is None or found[0] >= log.high_watermark:
                return EntryId(number + 1), None
            return EntryId(number + 1), (Offset(found[0]), found[1], header.leader_epoch)
    return EntryId(entry + ENTRIES_PER_TURN), None


def _find_in_batch(batch: memoryview, timestamp: int, start_offset: Offset) -> tuple[int, int] | None:
    """(offset, timestamp) of the batch's first record that is as young; its first offset where it cannot be read.

    What a producer compressed is stored unread, so it may not decompress, or to too much: then its consumers decide.
    """
    try:
        return find_by_timestamp(batch, timestamp, RECORDS_BYTES_MAX, RECORDS_MAX, start_offset)
    except (MalformedBatch, TooLarge, CorruptData):
        header = parse_batch(batch)
        return max(header.base_offset, start_offset), header.max_timestamp
