"""A shadow's knowledge of one partition of its source: the ledgers, and the entries that are replicated. Pure.

The invariants of `log/chain_image.py` hold. In addition:

1. An entry that the source's broker replicates is taken only if it agrees with the metadata records of the ledgers, and
   is refused if it contradicts them. An entry of an unknown segment or session waits for a newer record: at most
   WAITING_MAX entries wait, with at most WAITING_BYTES_MAX of their bytes.
2. The image is settled once every entry that bookies had stored at the opening is shown here, or excluded by a claim.
   Until then another broker may have shown a reader an offset beyond the high watermark known here: that reader waits,
   and gets no error.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from gnomon.bookie.ids import EntryId, SessionId
from gnomon.log.chain_image import ChainImage, ChainSegment
from gnomon.log.entry import Offset

WAITING_MAX = 256
"""Maximum replicated entries that wait for a record. Beyond it the oldest is discarded: storage has the entry."""
WAITING_BYTES_MAX = 1 << 20
ANY_OFFSET = Offset((1 << 63) - 1)
_BASE_OFFSET = attrgetter("base_offset")


class ReplicatedEntry(NamedTuple):
    """An entry that the source's broker has confirmed and replicated: its id, with or without its bytes."""

    segment: Offset
    """The base offset of its segment."""
    session: SessionId
    """The session in which it was confirmed."""
    entry: EntryId
    last_add_confirmed: EntryId
    stored: bytes | None = None
    """The entry as bookies store it; None if its bytes were not sent."""
    earlier: tuple[bytes | None, ...] = ()
    """The same for the entries directly before it, in their order."""
    next_offset: Offset | None = None
    """The offset after its last record, if it was sent."""

    @property
    def size_bytes(self) -> int:
        """The bytes of the entries that were sent."""
        return sum(len(one) for one in (*self.earlier, self.stored) if one is not None)

    @property
    def name(self) -> str:
        """The entry as errors name it."""
        return f"entry {self.entry} of segment {self.segment}"


class RefusedEntry(Exception):
    """A replicated entry contradicts the records, or belongs to a dropped segment; nothing was changed."""


class SourceImage(ChainImage):
    """The known state of one partition of the source."""

    def __init__(self) -> None:
        super().__init__()
        self.settled = False
        """See invariant 2."""
        self._waiting: deque[ReplicatedEntry] = deque(maxlen=WAITING_MAX)
        self._waiting_bytes = 0

    @property
    def next_offset(self) -> Offset:
        """The end of the log as any broker may have shown it."""
        return self.high_watermark if self.settled else ANY_OFFSET

    def judge(self, entry: ReplicatedEntry) -> ChainSegment | None:
        """The segment of a replicated entry that can be taken; None if the entry waits for its segment's record.

        Raises:
            RefusedEntry: it must not be taken.
        """
        if not 0 <= entry.entry <= entry.last_add_confirmed:
            raise RefusedEntry(f"{entry.name} is not confirmed: the last one confirmed is {entry.last_add_confirmed}")
        last = self.last
        if last is None or entry.segment > last.base_offset:
            self._wait(entry)
            return None
        at = bisect_left(self.segments, entry.segment, key=_BASE_OFFSET)
        segment = self.segments[at]
        if segment.base_offset != entry.segment:
            gone = at == 0
            raise RefusedEntry(
                f"{entry.name}: that segment is gone, the first one begins at {segment.base_offset}"
                if gone
                else f"{entry.name}: there is no such segment"
            )
        record = segment.record
        if entry.entry < record.start_entry:
            raise RefusedEntry(f"{entry.name} is gone: the segment begins with entry {record.start_entry}")
        if record.sealed and entry.last_add_confirmed > record.last_entry:
            raise RefusedEntry(f"{entry.name}: the segment ends with entry {record.last_entry}")
        if entry.session < record.session:
            raise RefusedEntry(f"{entry.name}: session {entry.session} is over, {record.session} has taken the segment")
        if entry.session > record.session:
            if record.sealed:
                raise RefusedEntry(f"{entry.name}: the segment was sealed in session {record.session}")
            self._wait(entry)
            return None
        return segment

    def _wait(self, entry: ReplicatedEntry) -> None:
        size_bytes = entry.size_bytes
        if self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
            entry = entry._replace(stored=None, earlier=())
        else:
            self._waiting_bytes += size_bytes
        self._waiting.append(entry)

    def waiting(self) -> Sequence[ReplicatedEntry]:
        """Removes and returns the entries that wait for records; the caller judges them again."""
        waiting = tuple(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return waiting
