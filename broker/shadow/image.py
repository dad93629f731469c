"""What a shadow knows of one partition of its source: segments, beginning, and up to where it may be shown. Pure.

1. start_offset <= high_watermark <= next_offset, and the first two never go back.
2. The high watermark is what the header of an entry says that was read and is confirmed, or what the record of a
   sealed segment says; so it never passes what is readable, nor what the source has confirmed.
3. Records come in the order of their revisions; what is older than what is known changes nothing.
4. All segments but the last are sealed; where one is given up, all before it are.
5. What a source's broker tells beside is taken only where the records bear it out: of a segment that is not known yet
   it waits, at most WAITING_MAX of it and without the entries beyond WAITING_BYTES_MAX; what contradicts them is
   refused.
6. Before it has settled, which takes all that bookies had stored when it was opened to be shown or excluded, an offset
   beyond the high watermark may be one that a reader was shown elsewhere: such a reader is to wait, and not to be told
   that there is no such offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from gnomon.bookie.ids import EntryId, LedgerId, Session
from gnomon.bookie.record import LedgerRecord, decode_record
from gnomon.broker.partition.entry import EntryHeader, LeaderEpoch, Offset
from gnomon.broker.partition.segment_record import EPOCH, NEXT_OFFSET, START_OFFSET, base_offset_of
from gnomon.metadata.client import Event, KeyValue

WAITING_MAX = 256
"""Told entries of segments that are not known yet; the oldest goes: storage has what it told."""
WAITING_BYTES_MAX = 1 << 20
ANY_OFFSET = Offset((1 << 63) - 1)
_BASE_OFFSET = attrgetter("base_offset")


class ToldEntry(NamedTuple):
    """A told entry: what a source's broker tells of one that it has confirmed."""

    segment: Offset
    """The base offset of its segment."""
    session: Session
    """That it was confirmed in."""
    entry: EntryId
    last_add_confirmed: EntryId
    stored: bytes | None = None
    """The entry as bookies keep it, where it came along."""
    earlier: tuple[bytes | None, ...] = ()
    """The same of those right before it, the last one last."""
    next_offset: Offset | None = None
    """Behind its last record, where that was told."""

    @property
    def size_bytes(self) -> int:
        """Of the entries that came along."""
        return sum(len(one) for one in (*self.earlier, self.stored) if one is not None)


class RefusedEntry(Exception):
    """What was told of an entry cannot be: made up, or of something that is gone; nothing was taken."""


class SourceSegment(NamedTuple):
    """One segment, by the newest record known."""

    base_offset: Offset
    ledger: LedgerId
    record: LedgerRecord
    stored: KeyValue


class SourceImage:
    """One partition of the source, as far as it is known here."""

    def __init__(self) -> None:
        self.segments: list[SourceSegment] = []
        """In the order of their base offsets."""
        self.epoch = LeaderEpoch(0)
        self.start_offset = Offset(0)
        self.high_watermark = Offset(0)
        self.settled = False
        """See invariant 6."""
        self._waiting: deque[ToldEntry] = deque(maxlen=WAITING_MAX)
        self._waiting_bytes = 0

    @property
    def next_offset(self) -> Offset:
        """Up to where a reader may have been shown the log."""
        return self.high_watermark if self.settled else ANY_OFFSET

    @property
    def last(self) -> SourceSegment | None:
        """The segment being written, None while there is none."""
        return self.segments[-1] if self.segments else None

    # --- from the metadata ----------------------------------------------------------------------------------------

    def replace(self, items: Iterable[KeyValue]) -> None:
        """All records at one revision."""
        self.segments = [_segment(item) for item in items]
        self._look()

    def apply(self, events: Iterable[Event]) -> None:
        """What changed at one revision."""
        for event in events:
            base_offset = base_offset_of(event.key)
            at = bisect_left(self.segments, base_offset, key=_BASE_OFFSET)
            known = at < len(self.segments) and self.segments[at].base_offset == base_offset
            if event.current is None:
                del self.segments[at : at + known]
            else:
                self.segments[at : at + known] = [_segment(event.current)]
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

    # --- from the bookies -----------------------------------------------------------------------------------------

    def confirmed(self, segment: Offset, header: EntryHeader) -> bool:
        """The entry with this header was read, is confirmed, and so is all before it; whether anything is new by that.

        Args:
            segment: the base offset of its segment.
        """
        assert header.base_offset >= segment, f"segment {segment} holds offset {header.base_offset}"
        self.epoch = max(self.epoch, header.leader_epoch)
        if header.next_offset <= self.high_watermark:
            return False
        self.high_watermark = header.next_offset
        return True

    # --- from the source's broker ---------------------------------------------------------------------------------

    def judge(self, told: ToldEntry) -> SourceSegment | None:
        """The segment of an entry that was told and is to be taken; None where it waits for its segment's record.

        Raises:
            RefusedEntry: it is not to be taken.
        """
        if not 0 <= told.entry <= told.last_add_confirmed:
            raise RefusedEntry(f"{_name(told)} is not confirmed: the last one confirmed is {told.last_add_confirmed}")
        last = self.last
        if last is None or told.segment > last.base_offset:
            self._wait(told)
            return None
        at = bisect_left(self.segments, told.segment, key=_BASE_OFFSET)
        segment = self.segments[at]
        if segment.base_offset != told.segment:
            gone = at == 0
            raise RefusedEntry(
                f"{_name(told)}: that segment is gone, the first one begins at {segment.base_offset}"
                if gone
                else f"{_name(told)}: there is no such segment"
            )
        record = segment.record
        if told.entry < record.start_entry:
            raise RefusedEntry(f"{_name(told)} is gone: the segment begins with entry {record.start_entry}")
        if record.sealed and told.last_add_confirmed > record.last_entry:
            raise RefusedEntry(f"{_name(told)}: the segment ends with entry {record.last_entry}")
        if told.session < record.session:
            raise RefusedEntry(f"{_name(told)}: session {told.session} is over, {record.session} has taken the segment")
        if told.session > record.session:
            if record.sealed:
                raise RefusedEntry(f"{_name(told)}: the segment was sealed in session {record.session}")
            self._wait(told)
            return None
        return segment

    def _wait(self, told: ToldEntry) -> None:
        size_bytes = told.size_bytes
        if self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
            told = told._replace(stored=None, earlier=())
        else:
            self._waiting_bytes += size_bytes
        self._waiting.append(told)

    def waiting(self) -> Sequence[ToldEntry]:
        """What waits for records, to be judged anew: it waits no longer."""
        waiting = tuple(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return waiting


def _segment(item: KeyValue) -> SourceSegment:
    return SourceSegment(base_offset_of(item.key), LedgerId(item.create_revision), decode_record(item.value), item)


def _name(told: ToldEntry) -> str:
    return f"entry {told.entry} of segment {told.segment}"
