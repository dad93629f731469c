"""The entries of a planned read in their order: checks their headers, and takes the batches of the range. Pure.

1. The first entry covers the first offset of the range. Each further entry begins where the entry before it ends, also
   in the next ledger. The last entry of a planned segment ends where the plan says.
2. The leader epoch never falls.
3. A batch covers the same offsets as its entry.
4. An entry without a batch (a snapshot of producer states) yields nothing.
5. Any other entry is an error, which names the ledger, the entry and its offsets. Nothing is skipped silently.
6. After `deleted` the next entry may begin at a later offset. The offsets between are reported as lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from gnomon.bookie.ids import EntryId
from gnomon.log.entry import EntryHeader, EntryKind, LeaderEpoch, Offset, UnknownEntry, unpack_entry
from gnomon.log.plans.read_plan import PlannedSegment
from gnomon.wire.kafka.batch import MalformedBatch, parse_batch

Lost: TypeAlias = Callable[[Offset, Offset], None]
"""Called with the first lost offset and the one after the last; it may raise."""

_NO_EPOCH: Final = LeaderEpoch(-1)


class UnreadableEntry(Exception):
    """An entry of a plan cannot be read; the text names the log, the ledger, the entry, its offsets and the reason.

    Attributes:
        offset: the first offset that was not read.
    """

    def __init__(self, log: str, segment: PlannedSegment, entry: EntryId, offset: Offset, reason: object) -> None:
        super().__init__(
            f"{log}: entry {entry} of ledger {segment.ledger}, with offsets from {offset} on and below"
            f" {segment.next_offset}, cannot be read: {reason}"
        )
        self.offset = offset


class PlanOutdated(UnreadableEntry):
    """The bookies of the plan do not have the entry, or do not answer.

    The copies may have moved to other bookies since, or the ledger was deleted: the newest records of the ledgers say
    which, and so does a new plan for the offsets from `offset` on.
    """


class PlannedEntries:
    """The entries of one range, taken one after the other."""

    def __init__(self, log: str, start: Offset, stop: Offset, lost: Lost) -> None:
        """Begins before the first entry.

        Args:
            log: the partition, for errors.
            start, stop: the first offset of the range, and the one after its last.
            lost: is called with offsets of the range that were deleted.
        """
        self.log = log
        self.offset = start
        """The first offset that was not taken yet."""
        self._stop, self._lost = stop, lost
        self._epoch = _NO_EPOCH
        self._begun = self._may_skip = False

    @property
    def done(self) -> bool:
        """Whether the range is taken whole."""
        return self.offset >= self._stop

    def take(self, segment: PlannedSegment, entry: EntryId, payload: memoryview) -> memoryview | None:
        """The batch of the next entry; None if the entry has no offset of the range.

        Raises:
            UnreadableEntry: see invariant 5.
            Exception: that of `lost`.
        """
        try:
            header, body = unpack_entry(payload)
        except UnknownEntry as error:
            raise self.unreadable(segment, entry, f"it {error.problem}") from None
        problem = self._problem(segment, entry, header)
        if problem is not None:
            raise self.unreadable(segment, entry, problem)
        batch = self._batch(segment, entry, header, body)
        if header.base_offset > self.offset:
            self._lost(self.offset, min(header.base_offset, self._stop))
        wanted = header.base_offset < self._stop and header.next_offset > self.offset
        self._begun = self._begun or header.next_offset > self.offset
        self._may_skip, self._epoch = False, header.leader_epoch
        self.offset = max(self.offset, header.next_offset)
        return batch if wanted else None

    def deleted(self) -> None:
        """Reports that the next entries of the plan were deleted."""
        self._may_skip = True

    def ended(self) -> None:
        """Reports that the plan has no more entries; raises as `lost`, if the range is not taken whole."""
        assert self._may_skip, f"{self.log}: a plan that ends at {self.offset} was read up to {self._stop}"
        self._lost(self.offset, self._stop)
        self.offset = self._stop

    def unreadable(
        self, segment: PlannedSegment, entry: EntryId, reason: object, kind: type[UnreadableEntry] = UnreadableEntry
    ) -> UnreadableEntry:
        """The error for the next entry."""
        return kind(self.log, segment, entry, self.offset, reason)

    def _problem(self, segment: PlannedSegment, entry: EntryId, header: EntryHeader) -> str | None:
        begin, end, expected = header.base_offset, header.next_offset, self.offset
        if end < begin:
            return f"it ends at offset {end}, and begins at {begin}"
        if begin > expected and not self._may_skip:
            return f"it begins at offset {begin}, and {expected} was expected"
        if begin < expected and self._begun:
            return f"it begins at offset {begin}, and the entry before it ends at {expected}"
        if entry == segment.last and end != segment.next_offset:
            return f"it ends at offset {end}, and the plan says {segment.next_offset}"
        if header.leader_epoch < self._epoch:
            return f"its leader epoch is {header.leader_epoch}, and that of an entry before it is {self._epoch}"
        return None

    def _batch(
        self, segment: PlannedSegment, entry: EntryId, header: EntryHeader, batch: memoryview
    ) -> memoryview | None:
        if header.kind != EntryKind.BATCH:
            return None
        try:
            found = parse_batch(batch)
        except MalformedBatch as error:
            raise self.unreadable(segment, entry, error) from None
        if (found.base_offset, found.next_offset) != (header.base_offset, header.next_offset):
            raise self.unreadable(
                segment, entry, f"its batch has the offsets from {found.base_offset} on and below {found.next_offset}"
            )
        return batch
