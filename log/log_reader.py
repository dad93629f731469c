"""Reads one partition: batches by offset, and searches by time, offset and leader epoch.

1. No record at or above the high watermark is returned (`broker.partition.log` invariant 3).
2. `read` never waits: if an entry is not in memory, it raises `NotInMemory`. The batches are slices of the ledgers'
   memory, and are valid until the caller closes the `LocalViews` that it passed. Searches wait for entries that are not
   in memory. Searches by time also yield to other tasks, so a search may or may not find records appended meanwhile.
   They read at most RECORDS_AT_ONCE records of a batch, and unpack at most BYTES_AT_ONCE, within a turn of the event
   loop; a copy of any other batch is read in a thread.
3. A search returns no offset below the start of the log, although the batch that contains the offset may begin below.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import trio

from gnomon.bookie.errors import LedgerError, NotEnoughBookies
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import EntryView, LocalViews, NotInMemory, read_from_memory
from gnomon.log.entry import NO_OFFSET, EntryHeader, EntryKind, LeaderEpoch, Offset, UnknownEntry
from gnomon.log.segment import Segment
from gnomon.runtime.logs import Logger
from gnomon.wire.kafka.batch import MalformedBatch, parse_batch
from gnomon.wire.kafka.compression import CorruptData, UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import find_by_timestamp, largest_timestamp

RECORDS_BYTES_MAX = 16 << 20
"""Most bytes that a search by time decompresses of one batch, and most records that it reads: 0.1 s together, in a
thread."""
RECORDS_MAX = 100_000
BYTES_AT_ONCE = 256 << 10
RECORDS_AT_ONCE = 1_000
"""Reading as many takes some 1 ms."""
ENTRIES_PER_TURN = 1000
"""A search yields to other tasks after this many headers, at some 3 us each, and after every decompressed batch."""

_BASE_OFFSET = attrgetter("base_offset")
T = TypeVar("T")
Place: TypeAlias = tuple[Offset, int, LeaderEpoch]
"""The offset, the timestamp and the leader epoch of a record."""


class RecordsThread(Protocol):
    """Runs `call(batch, bytes_max)` outside of the event loop, for the client that a search is made for.

    `call` may run several times, first with fewer bytes, and raises UnpackedTooLarge if they do not suffice.
    """

    async def __call__(self, batch: memoryview, bytes_max: int, call: Callable[[memoryview, int], T], /) -> T: ...


class _LongBatch(NamedTuple):
    """A copy of a batch that takes too long to read within a turn."""

    batch: memoryview
    epoch: LeaderEpoch


class LogBounds(Protocol):
    """The bounds of a log that reading needs: its start, its end, and its leader epoch."""

    @property
    def epoch(self) -> LeaderEpoch:
        """The current leader epoch."""

    @property
    def start_offset(self) -> Offset:
        """The first offset that is kept."""

    @property
    def high_watermark(self) -> Offset:
        """The end of the readable records."""

    @property
    def next_offset(self) -> Offset:
        """The highest offset that a reader may have seen; no client can know a higher one."""


class LogReader:
    """The log of one partition and its known segments; the code that opens the chain sets both."""

    log: LogBounds | None
    """The bounds of the log; None until opened."""

    def __init__(self, logger: Logger) -> None:
        self.log = None
        self.segments: list[Segment] = []
        self._logger = logger
        self._unreadable = ""

    def check_epoch(self, epoch: int) -> ErrorCode:
        """Checks the leader epoch of a client's request; -1 means none (KIP-320)."""
        log = self.log
        if epoch < 0 or log is None or epoch == log.epoch:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < log.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def segment_of(self, offset: Offset) -> int:
        """The index in `segments` of the segment of `offset`."""
        return bisect_right(self.segments, offset, 1, key=_BASE_OFFSET) - 1  # from 1 on: nothing is before the first

    def read(
        self, offset: Offset, bytes_max: int, at_least_one: bool, views: LocalViews
    ) -> tuple[list[memoryview], int, ErrorCode]:
        """Durable batches of one segment, starting with the one that covers `offset`; valid as long as `views`.

        Batches before a damaged one are returned without an error. A request for the damaged one gets the error, which
        is logged once.

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
            self._tell_unreadable(segment, offset, error)
            return [], 0, ErrorCode.KAFKA_STORAGE_ERROR
        return chunks, size, ErrorCode.NONE

    def _tell_unreadable(self, segment: Segment, offset: Offset, error: LedgerError) -> None:
        """Logs that records cannot be read, once per reason."""
        if str(error) == self._unreadable:
            return
        self._unreadable = str(error)
        if isinstance(error, NotEnoughBookies):
            advice = "start the bookies that are away"
        elif isinstance(error, UnknownEntry):
            advice = "upgrade gnomon to the version that wrote the entry"
        else:
            advice = "restore the data directory from a copy, or let consumers seek past the damage"
        self._logger.error(
            "records_not_readable", ledger=segment.ledger.name, offset=offset, reason=str(error), next=advice
        )

    async def earliest(self) -> tuple[Offset, LeaderEpoch]:
        """The start of the log, and the leader epoch of the record there.

        The epoch of a log without records is the current one. If the record is damaged, the epoch is -1, which means
        "unknown" to Kafka's clients.
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

    async def offset_for_timestamp(self, timestamp: int, thread: RecordsThread) -> Place | None:
        """The first record with a timestamp >= `timestamp`; long batches are read in `thread`."""
        log = self.log
        assert log is not None
        return await self._search_by_time(log, timestamp, thread)

    async def _search_by_time(self, log: LogBounds, timestamp: int, thread: RecordsThread) -> Place | None:
        """`offset_for_timestamp` with the bounds of the request: the partition may be taken over during the search."""
        for segment in list(self.segments):
            if segment.next_offset is not None and segment.max_timestamp < timestamp:
                continue
            found = await _find_timestamp(segment, timestamp, log, thread)
            if found is not None:
                return found
        return None

    async def max_timestamp_offset(self, thread: RecordsThread) -> Place | None:
        """The record with the largest timestamp (KIP-734); long batches are read in `thread`."""
        log = self.log
        assert log is not None
        while True:
            start_offset, best = log.start_offset, -1
            for segment in list(self.segments):
                best = max(best, await self._largest_timestamp(segment, start_offset, thread))
            found = None if best < 0 else await self._search_by_time(log, best, thread)
            if found is not None or log.start_offset == start_offset:
                return found  # else the record was deleted during the search

    async def _largest_timestamp(self, segment: Segment, start_offset: Offset, thread: RecordsThread) -> int:
        """The last header has the largest timestamp of a whole segment; if a part was deleted, examines each batch.

        Of the batch that contains the log's start only the records from the start on count.
        """
        last = segment.ledger.last_add_confirmed

        def by_header() -> tuple[EntryId, int | None]:
            with segment.view() as view:
                entry = segment.first_entry(view, lambda header: header.next_offset > start_offset)
                whole = entry <= last and start_offset <= segment.base_offset
                return entry, segment.header(view, last).max_timestamp if whole else None

        def by_records() -> int | memoryview:
            with segment.view() as view:
                header, batch = segment.entry(view, entry)
                is_cut = header.kind == EntryKind.BATCH and header.base_offset < start_offset
                return _largest_at_once(batch, start_offset) if is_cut else -1

        def by_batches() -> tuple[int, EntryId]:
            with segment.view() as view:
                return segment.largest_timestamp(view, entry, EntryId(min(entry + ENTRIES_PER_TURN, last + 1)))

        entry, found = await read_from_memory(by_header)
        if found is not None:
            return found
        if entry > last:
            return -1
        cut = await read_from_memory(by_records)
        best = await _largest_in_batch(cut, start_offset, thread) if isinstance(cut, memoryview) else cut
        if best >= 0:
            entry = EntryId(entry + 1)
        while entry <= last:
            largest, entry = await read_from_memory(by_batches)
            best = max(best, largest)
            await trio.lowlevel.checkpoint()
        return best

    async def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The end of an epoch (KIP-279): the largest epoch <= `epoch` with records, and the offset after it.

        A future epoch has no end yet: (-1, -1). An epoch older than all records ends at the start of the log.
        """
        log = self.log
        assert log is not None
        if not 0 <= epoch <= log.epoch:
            return LeaderEpoch(-1), NO_OFFSET
        if epoch == log.epoch:
            return epoch, log.high_watermark
        for segment in reversed(list(self.segments)):  # some of them may be deleted meanwhile
            found = await read_from_memory(partial(_end_of_epoch, segment, epoch))
            if found is not None:
                return found[0], Offset(min(found[1], log.high_watermark))
        return epoch, log.start_offset


async def read_header(segment: Segment, entry: EntryId) -> EntryHeader:
    """The header of a confirmed entry.

    Raises:
        LedgerError: it cannot be read.
    """

    def header() -> EntryHeader:
        with segment.view() as view:
            return segment.header(view, entry)

    return await read_from_memory(header)


def _end_of_epoch(segment: Segment, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
    with segment.view() as view:
        return segment.end_of_epoch(view, epoch)


async def _find_timestamp(segment: Segment, timestamp: int, log: LogBounds, thread: RecordsThread) -> Place | None:
    def first_entry() -> EntryId:
        with segment.view() as view:
            return segment.first_entry(view, lambda header: header.max_timestamp >= timestamp)

    def search() -> tuple[EntryId, Place | _LongBatch | None]:
        with segment.view() as view:
            return _search(segment, view, entry, timestamp, log)

    entry = await read_from_memory(first_entry)
    while entry <= segment.ledger.last_add_confirmed:
        entry, found = await read_from_memory(search)
        await trio.lowlevel.checkpoint()
        if isinstance(found, _LongBatch):
            place = await _find_in_batch(found.batch, timestamp, log.start_offset, thread)
            found = _readable(place, found.epoch, log)
        if found is not None:
            return found
    return None


def _search(
    segment: Segment, view: EntryView, entry: EntryId, timestamp: int, log: LogBounds
) -> tuple[EntryId, Place | _LongBatch | None]:
    """Examines the next headers, and at most one batch; returns where to continue, and the result."""
    last = segment.ledger.last_add_confirmed
    for number in range(entry, min(entry + ENTRIES_PER_TURN, last + 1)):
        try:
            header, batch = segment.entry(view, EntryId(number))
        except NotInMemory:
            if number == entry:
                raise
            return EntryId(number), None
        if header.kind != EntryKind.BATCH or header.next_offset <= log.start_offset:
            continue
        if parse_batch(batch).max_timestamp >= timestamp:
            place = _find_at_once(batch, timestamp, log.start_offset)
            if isinstance(place, memoryview):
                return EntryId(number + 1), _LongBatch(place, header.leader_epoch)
            return EntryId(number + 1), _readable(place, header.leader_epoch, log)
    return EntryId(entry + ENTRIES_PER_TURN), None


def _readable(place: tuple[int, int] | None, epoch: LeaderEpoch, log: LogBounds) -> Place | None:
    """The place of a record (offset, timestamp) below the high watermark."""
    if place is None or place[0] >= log.high_watermark:
        return None
    return Offset(place[0]), place[1], epoch


def _largest_at_once(batch: memoryview, start_offset: Offset) -> int | memoryview:
    """The largest timestamp of the batch's records from the start on, or a copy of a batch that takes longer."""
    try:
        if len(batch) <= BYTES_AT_ONCE:
            return largest_timestamp(batch, BYTES_AT_ONCE, RECORDS_AT_ONCE, start_offset)
    except (MalformedBatch, CorruptData):
        return parse_batch(batch).max_timestamp
    except UnpackedTooLarge:
        pass
    return memoryview(bytes(batch))


async def _largest_in_batch(batch: memoryview, start_offset: Offset, thread: RecordsThread) -> int:
    """The largest timestamp of the batch's records from the start on; of all of its records if it is unreadable."""

    def largest(batch: memoryview, bytes_max: int) -> int:
        return largest_timestamp(batch, bytes_max, RECORDS_MAX, start_offset)

    try:
        return await thread(batch, RECORDS_BYTES_MAX, largest)
    except (MalformedBatch, UnpackedTooLarge, CorruptData):
        return parse_batch(batch).max_timestamp


def _find_at_once(batch: memoryview, timestamp: int, start_offset: Offset) -> tuple[int, int] | memoryview | None:
    """The result of `_find_in_batch`, or a copy of a batch that takes longer."""
    try:
        if len(batch) <= BYTES_AT_ONCE:
            return find_by_timestamp(batch, timestamp, BYTES_AT_ONCE, RECORDS_AT_ONCE, start_offset)
    except (MalformedBatch, CorruptData):
        return _unreadable(batch, start_offset)
    except UnpackedTooLarge:
        pass
    return memoryview(bytes(batch))


async def _find_in_batch(
    batch: memoryview, timestamp: int, start_offset: Offset, thread: RecordsThread
) -> tuple[int, int] | None:
    """(offset, timestamp) of the batch's first record that is young enough; the first offset of an unreadable batch.

    A producer's compressed batch is stored unread, so it may fail to decompress, or be too large. Such a batch counts
    as found, and its consumers decide.
    """

    def find(batch: memoryview, bytes_max: int) -> tuple[int, int] | None:
        return find_by_timestamp(batch, timestamp, bytes_max, RECORDS_MAX, start_offset)

    try:
        return await thread(batch, RECORDS_BYTES_MAX, find)
    except (MalformedBatch, UnpackedTooLarge, CorruptData):
        return _unreadable(batch, start_offset)


def _unreadable(batch: memoryview, start_offset: Offset) -> tuple[int, int]:
    header = parse_batch(batch)
    return max(header.base_offset, start_offset), header.max_timestamp
