"""Reads a range of offsets from the bookies of a plan, without brokers and metadata.

    async with planned_bookies(world, warn) as known:
        bookies = known.of(plan.cluster, plan.bookies)
        read = read_planned(bookies, "orders-0", plan.partitions[0].segments, start, stop, lost)
        async with aclosing(read) as runs:
            async for batches in runs:
                ...

While the caller works on the batches of a run, the next run is on its way, if the caller lets other tasks run: at most
two runs are in memory.

The first entry of the range is found by bisection over entry headers. So a range may begin anywhere in a planned
segment: a plan has offsets only of the ends of segments, and a range that was cut needs no others.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

import trio

from gnomon.bookie.errors import DigestMismatch, EntryShrunk, LedgerError
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import (
    RUN_BYTES_MAX,
    Bookies,
    next_run_bytes,
    read_run,
)
from gnomon.log.entry import EntryHeader, Offset, UnknownEntry, unpack_header
from gnomon.log.plans.planned_entries import Lost, PlannedEntries, PlanOutdated, UnreadableEntry
from gnomon.log.plans.read_plan import PlannedSegment


async def read_planned(
    bookies: Bookies, log: str, segments: Sequence[PlannedSegment], start: Offset, stop: Offset, lost: Lost
) -> AsyncGenerator[list[memoryview], None]:
    """The batches with the offsets from `start` up to, but not including, `stop`; the first and the last may have more.

    Args:
        bookies: those of the plan.
        log: the partition, for errors.
        segments: of the partition, with at least the offsets of the range.
        lost: is called with offsets of the range that were deleted; if it returns, reading goes on after them.

    Raises:
        PlanOutdated: the bookies of an entry do not have it, or not all of them answer.
        UnreadableEntry: all copies of an entry are damaged, or its header contradicts the plan or the entry before it.
        ValueError: the segments do not reach up to `stop`.
        Exception: that of `lost`.
    """
    if start >= stop:
        return
    if not segments or segments[-1].next_offset < stop:
        end = segments[-1].next_offset if segments else start
        raise ValueError(f"{log}: the plan ends at offset {end}, the range at {stop}")
    reading = _PlannedRead(bookies, PlannedEntries(log, start, stop, lost), segments)
    try:
        await reading.find()
        while not reading.done:
            batches = await reading.next()
            if batches:
                yield batches
    finally:
        reading.close()


class _Sound(NamedTuple):
    """An entry whose header can be read."""

    entry: EntryId
    header: EntryHeader


class _RequestedRun:
    """A run of entries that was requested."""

    def __init__(self, bookies: Bookies, segment: PlannedSegment, first: EntryId, bytes_max: int) -> None:
        self.segment, self.first = segment, first
        self.next_bytes = bytes_max
        """The bytes to request of the next run, once this one has arrived."""
        self._bookies, self._bytes_max = bookies, bytes_max
        self._ended, self._scope = trio.Event(), trio.CancelScope()
        self._payloads: list[memoryview] = []
        self._failure: Exception | None = None
        bookies.start_soon(self._load)

    async def _load(self) -> None:
        began = self._bookies.clock.monotonic()
        with self._scope:
            try:
                ledger, record, last = self.segment.ledger, self.segment.record, self.segment.last
                run = await read_run(self._bookies, ledger, record, self.first, last, self._bytes_max)
                self._payloads = [stored.payload for stored in run]
            except Exception as error:
                self._failure = error
        self.next_bytes = next_run_bytes(self._bytes_max, self._bookies.clock.monotonic() - began)
        self._ended.set()

    async def payloads(self) -> list[memoryview]:
        """The payloads of the entries, once they are here; raises as `read_run`."""
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure
        return self._payloads

    def cancel(self) -> None:
        """Ends the request; nobody waits for it."""
        self._scope.cancel()


class _PlannedRead:
    """The runs of one range."""

    def __init__(self, bookies: Bookies, entries: PlannedEntries, segments: Sequence[PlannedSegment]) -> None:
        self._bookies, self._entries = bookies, entries
        self._left = [segment for segment in reversed(segments) if segment.next_offset > entries.offset]
        """The segments that are not read whole, the next one last."""
        self._at = self._left[-1].first
        """The next entry to request, in the next segment."""
        self._run_bytes = RUN_BYTES_MAX
        self._ahead: _RequestedRun | None = None

    @property
    def done(self) -> bool:
        return self._entries.done

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()

    async def next(self) -> list[memoryview]:
        """The batches of the next run; none if it has only other entries, or was deleted."""
        if not self._left:
            self._entries.ended()
            return []
        run = self._ahead or self._request()
        self._ahead = run  # it is cancelled by `close` if this call is
        try:
            payloads = await run.payloads()
        except EntryShrunk as error:
            self._ahead = None
            self._entries.deleted()
            self._move_to(max(EntryId(run.first + 1), error.start_entry))
            return []
        except LedgerError as error:
            raise self._unreadable(run.segment, run.first, error) from error
        self._ahead, self._run_bytes = None, run.next_bytes
        self._move_to(EntryId(run.first + len(payloads)))
        batches = []
        for entry, payload in enumerate(payloads, run.first):
            batch = self._entries.take(run.segment, EntryId(entry), payload)
            if batch is not None:
                batches.append(batch)
        if self._left and not self.done:
            self._ahead = self._request()
        return batches

    def _request(self) -> _RequestedRun:
        return _RequestedRun(self._bookies, self._left[-1], self._at, self._run_bytes)

    def _move_to(self, entry: EntryId) -> None:
        self._at = entry
        if entry > self._left[-1].last:
            self._left.pop()
            if self._left:
                self._at = self._left[-1].first

    def _unreadable(self, segment: PlannedSegment, entry: EntryId, error: LedgerError) -> UnreadableEntry:
        """The error for an entry: no other plan helps if all of its bookies answer, and the last copy is damaged."""
        answering = self._bookies.available().keys()
        final = isinstance(error, DigestMismatch) and answering >= set(segment.record.fragment_of(entry).bookies)
        return self._entries.unreadable(segment, entry, error, UnreadableEntry if final else PlanOutdated)

    async def find(self) -> None:
        """Moves to the entry with the first offset of the range.

        Entries that are damaged, unknown or deleted hide no other entry from the search. The result is the first of
        them, if they may have that offset.
        """
        segment, offset = self._left[-1], self._entries.offset
        low, high = segment.first, segment.last
        middle = low  # most ranges begin with a segment, or where the leader has cut it
        found: _Sound | None = None
        while low < high:
            sound = await self._sound(segment, middle, high)
            if sound is None or sound.header.next_offset > offset:
                high, found = middle, sound or found
            else:
                low = EntryId(sound.entry + 1)
            middle = EntryId((low + high) // 2)
        self._at = found.entry if found is not None and found.header.base_offset <= offset else low

    async def _sound(self, segment: PlannedSegment, entry: EntryId, end: EntryId) -> _Sound | None:
        """The first entry from `entry` on and below `end` whose header can be read."""
        while entry < end:
            try:
                run = await read_run(self._bookies, segment.ledger, segment.record, entry, entry, 1)
                return _Sound(entry, unpack_header(run[0].payload))
            except EntryShrunk as error:
                entry = max(EntryId(entry + 1), error.start_entry)
            except (DigestMismatch, UnknownEntry):
                entry = EntryId(entry + 1)
            except LedgerError as error:
                raise self._unreadable(segment, entry, error) from error
        return None
