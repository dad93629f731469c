"""The part of an open partition that a read plan names: the segments of a range of offsets, and the run of each.

1. A run ends with a confirmed entry whose records are below the high watermark, whatever was appended since.
2. A run has every entry with records of the range, those that cannot be read included: their reader gets the error.
3. A segment that lies in the range as a whole costs no read. Of the others, some twenty headers are looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import read_from_memory
from gnomon.log.entry import HEADER_BYTES, Offset
from gnomon.log.log_reader import LogBounds, LogReader
from gnomon.log.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


class Run(NamedTuple):
    """The entries of one segment that a plan names."""

    first: EntryId
    last: EntryId
    next_offset: Offset
    size_bytes: int
    """At least the bytes of the headers, if the first or the last entry cannot be read."""


class PlannedRange(NamedTuple):
    """A range of a partition's offsets at one time, with the segments that have its records."""

    first: Offset
    end: Offset
    start_offset: Offset
    high_watermark: Offset
    segments: Sequence[Segment]

    @classmethod
    def of(cls, partition: LogReader, log: LogBounds, first: Offset, end: Offset, segments_max: int) -> PlannedRange:
        """The part of [first, end) that the log has now, with its first `segments_max` segments."""
        start, high_watermark = log.start_offset, log.high_watermark
        first, end = max(first, start), min(end, high_watermark)
        if first >= end:
            return cls(first, end, start, high_watermark, ())
        at, stop = partition.segment_of(first), bisect_left(partition.segments, end, key=_BASE_OFFSET)
        segments = partition.segments[at : min(stop, at + segments_max)]
        return cls(first, end, start, high_watermark, segments)

    def is_whole(self, segment: Segment) -> bool:
        """Whether the range has all records of a segment, which is sealed."""
        return self.first <= segment.base_offset and segment.next_offset is not None and segment.next_offset <= self.end

    async def run(self, segment: Segment) -> Run:
        """The run of one of the segments.

        Raises:
            LedgerError: too few bookies answer.
        """
        ledger, sealed_at = segment.ledger, segment.next_offset
        end = self.end if sealed_at is None else min(self.end, sealed_at)

        def bounds() -> tuple[EntryId, EntryId, Offset]:
            with segment.view() as view:
                first = segment.entry_of(view, self.first) if self.first > segment.base_offset else ledger.start_entry
                last, next_offset = segment.last_entry(view, end, self.high_watermark)
                return first, last, next_offset

        if self.first <= segment.base_offset and end == sealed_at:
            first, last, next_offset = ledger.start_entry, ledger.record.last_entry, end
        else:
            first, last, next_offset = await read_from_memory(bounds)
        try:
            size_bytes = await ledger.payload_bytes(first, last)
        except LedgerError:
            size_bytes = 0
        return Run(first, last, next_offset, max(size_bytes, (last - first + 1) * HEADER_BYTES))
