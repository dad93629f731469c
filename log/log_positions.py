"""One partition's log for subscriptions: finds a batch by its offset, and converts offsets to and from DLSNs (places in
storage)."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from gnomon.bookie.errors import DigestMismatch
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import EntryView, LocalViews, read_from_memory
from gnomon.log.dlsn import BEGINNING, Dlsn
from gnomon.log.entry import EntryHeader, EntryKind, LeaderEpoch, Offset
from gnomon.log.log_reader import LogBounds, LogReader
from gnomon.log.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


class Batch(NamedTuple):
    """One stored batch; its bytes are valid as long as the views that it was read from."""

    segment: Offset
    entry: EntryId
    base_offset: Offset
    next_offset: Offset
    epoch: LeaderEpoch
    records: memoryview


class LogPositions:
    """The log of one partition: its bounds, and the segments that `partition` knows."""

    def __init__(self, bounds: LogBounds, partition: LogReader) -> None:
        self.bounds = bounds
        self._partition = partition

    def _segment_of(self, offset: int) -> Segment:
        """The segment of `offset`; always exists, except for a shadow whose source was never used."""
        segments = self._partition.segments
        return segments[bisect_right(segments, offset, 1, key=_BASE_OFFSET) - 1]

    def batch(self, offset: Offset, views: LocalViews) -> Batch:
        """The batch that covers `offset`, which is below the high watermark.

        Raises:
            NotInMemory: load the entry and ask again.
            LedgerError: it cannot be read.
        """
        segment = self._segment_of(offset)
        view = segment.view_among(views)
        entry = segment.entry_of(view, offset)
        while True:
            header, records = segment.entry(view, entry)
            entry = EntryId(entry + 1)
            if header.kind == EntryKind.BATCH:
                segment.remember(header.next_offset, entry)
                at = EntryId(entry - 1)
                return Batch(
                    segment.base_offset, at, header.base_offset, header.next_offset, header.leader_epoch, records
                )

    async def dlsn_of(self, offset: Offset) -> Dlsn:
        """The place of the record at `offset`; for a record that is not written yet, its later place or an earlier one.

        Raises:
            LedgerError: it cannot be determined.
        """
        if not self._partition.segments:  # a shadow whose source was never written
            return BEGINNING
        offset = max(offset, self.bounds.start_offset)
        segment = self._segment_of(offset)

        def find() -> Dlsn:
            with segment.view() as view:
                # The end of the log is searched too: entries left behind by a failed writer may be confirmed although
                # they were never shown, so the last add confirmed may be too high.
                entry = segment.entry_of(view, offset)
                if entry > segment.ledger.last_add_confirmed:
                    return Dlsn(segment.base_offset, entry, 0)
                header = _header_before(segment, view, EntryId(entry + 1))
                slot = offset - header.base_offset if header is not None and header.next_offset > offset else 0
                return Dlsn(segment.base_offset, entry, slot)

        return await read_from_memory(find)

    async def offset_of(self, dlsn: Dlsn) -> Offset:
        """The offset of a DLSN, between the start of the log and the high watermark.

        Raises:
            LedgerError: it cannot be determined.
        """
        bounds = self.bounds
        if not self._partition.segments:
            return bounds.start_offset
        segment = self._segment_of(dlsn.segment)
        if segment.base_offset != dlsn.segment:  # the segment is deleted, or not known yet
            found = dlsn.segment
        elif dlsn.entry > segment.ledger.last_add_confirmed:
            segments = self._partition.segments
            at = segments.index(segment) + 1
            found = segments[at].base_offset if at < len(segments) else bounds.high_watermark
        else:

            def base() -> int:
                with segment.view() as view:
                    before = _header_before(segment, view, EntryId(dlsn.entry))
                    return segment.base_offset if before is None else before.next_offset

            found = await read_from_memory(base) + dlsn.slot
        return Offset(min(max(found, bounds.start_offset), bounds.high_watermark))


def _header_before(segment: Segment, view: EntryView, entry: EntryId) -> EntryHeader | None:
    """The header of the last sound entry before `entry`, None if there is none."""
    for number in range(entry - 1, segment.ledger.start_entry - 1, -1):
        try:
            return segment.header(view, EntryId(number))
        except DigestMismatch:
            continue
    return None
