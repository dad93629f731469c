"""A partition's chain of segments (ledgers), as a process knows it that has not claimed the chain. Pure.

The knowledge comes from the segments' metadata records, and from the headers of entries that were read.

1. start_offset <= high_watermark, and neither decreases.
2. The high watermark comes from the header of a confirmed entry that was read, or from the segments' metadata records.
   So all records below it were confirmed by the leader, and can be read unless they are deleted.
3. Metadata records are applied in the order of their revisions. An event for a ledger changes nothing if the ledger
   that replaced it is already known.
4. All segments except the last are sealed. A segment is deleted only after all segments before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from gnomon.bookie.ids import LedgerId
from gnomon.bookie.record import LedgerRecord, decode_record
from gnomon.log.entry import EntryHeader, LeaderEpoch, Offset
from gnomon.log.segment_record import EPOCH, NEXT_OFFSET, START_OFFSET, parse_segment_name
from gnomon.metadata.client import Event, KeyValue

_BASE_OFFSET = attrgetter("base_offset")


class ChainSegment(NamedTuple):
    """One segment, by its newest known record."""

    base_offset: Offset
    cleaning: int
    ledger: LedgerId
    record: LedgerRecord
    stored: KeyValue


class ChainImage:
    """The known part of one partition's chain."""

    def __init__(self) -> None:
        self.segments: list[ChainSegment] = []
        """In the order of their base offsets."""
        self.epoch = LeaderEpoch(0)
        self.start_offset = Offset(0)
        self.high_watermark = Offset(0)

    @property
    def next_offset(self) -> Offset:
        """The highest end of the log that a reader may have seen."""
        return self.high_watermark

    @property
    def last(self) -> ChainSegment | None:
        """The segment being written, None while there is none."""
        return self.segments[-1] if self.segments else None

    def replace(self, items: Iterable[KeyValue]) -> None:
        """Takes all records of one revision."""
        self.segments = [_segment(item) for item in items]
        self._look()

    def apply(self, events: Iterable[Event]) -> None:
        """Takes the changes of one revision."""
        for event in events:
            name = parse_segment_name(event.key)
            at = bisect_left(self.segments, name.base_offset, key=_BASE_OFFSET)
            known = self.segments[at : at + 1]
            here = [one for one in known if one.base_offset == name.base_offset]
            if any(one.cleaning > name.cleaning for one in here):
                continue  # the ledger that replaced it is known already
            if event.current is not None:
                self.segments[at : at + len(here)] = [_segment(event.current)]
            elif here and here[0].cleaning == name.cleaning:
                del self.segments[at]
        self._look()

    def _look(self) -> None:
        if not self.segments:
            return
        first, last = self.segments[0], self.segments[-1]
        start_offset = max(first.base_offset, first.record.properties.get(START_OFFSET, 0))
        self.start_offset = max(self.start_offset, Offset(start_offset))
        self.epoch = max(self.epoch, LeaderEpoch(last.record.properties[EPOCH]))
        end = last.record.properties[NEXT_OFFSET] if last.record.sealed else last.base_offset
        self.high_watermark = max(self.high_watermark, self.start_offset, Offset(end))

    def confirmed(self, segment: Offset, header: EntryHeader) -> bool:
        """Takes the header of a confirmed entry that was read; returns whether the image advanced.

        Args:
            segment: the base offset of its segment.
        """
        assert header.base_offset >= segment, f"segment {segment} holds offset {header.base_offset}"
        self.epoch = max(self.epoch, header.leader_epoch)
        if header.next_offset <= self.high_watermark:
            return False
        self.high_watermark = header.next_offset
        return True


def _segment(item: KeyValue) -> ChainSegment:
    return ChainSegment(*parse_segment_name(item.key), LedgerId(item.create_revision), decode_record(item.value), item)
