"""Checks the entries of one partition, in the order of its log. Pure.

1. Each entry begins at the offset where the entry before it ends, also across segments. The first entry of a segment
   from which nothing was deleted begins at the base offset of that segment; the first one that remains of another
   segment begins at or before the start of the log.
2. An entry with a batch covers at least one offset, a snapshot covers none; batches are those of `audited_batch`.
3. Leader epochs never fall, and no epoch is above that of the segment's metadata record.
4. The last stable offset never falls and is at most the next offset. Inside a segment the largest timestamp does not
   fall.
5. The last entry of a sealed segment ends at the offset, and has the largest timestamp, that its metadata record names.
6. After an entry without a sound copy the rules hold from the next entry on: such an entry is one finding, and no gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from gnomon.bookie.ids import NO_ENTRY, BookieId, EntryId
from gnomon.log.audit.audited_batch import batch_problem
from gnomon.log.audit.fault_runs import FaultRuns
from gnomon.log.audit.finding import FindingKind
from gnomon.log.chain_image import ChainSegment
from gnomon.log.entry import EntryHeader, EntryKind, Offset, UnknownEntry, unpack_entry
from gnomon.log.segment_record import EPOCH, MAX_TIMESTAMP, NEXT_OFFSET, START_OFFSET


class EntryWithCopies(Protocol):
    """An entry after the comparison of its copies."""

    @property
    def entry(self) -> EntryId:
        """Its number in the ledger."""

    @property
    def payload(self) -> memoryview | None:
        """Of the copy that counts as the entry; None if no copy is sound."""

    @property
    def asked(self) -> Sequence[BookieId]:
        """The bookies of its write set that answered."""

    @property
    def faults(self) -> Mapping[BookieId, tuple[str, str]]:
        """By bookie the value of a `FindingKind`, and the words of the bookie."""


class EntriesAudit:
    """The check of one partition: `begin` each segment, `take` its entries in order, `end` it."""

    def __init__(self, topic: str, partition: int) -> None:
        self.runs = FaultRuns(topic, partition)
        self.entries = self.copies = 0
        """The entries of which a copy was asked for, and the sound copies among them."""
        self.end_offset: Offset | None = None
        """The offset after the last entry that was read; None before the first one."""
        self._before: EntryHeader | None = None
        """The header of the entry directly before; None at the beginning, and after one that could not be read."""
        self._epoch = -1
        self._ledger = ""

    def begin(self, segment: ChainSegment, ledger: str) -> None:
        """The entries of a segment follow; `ledger` is the name of its ledger."""
        self._segment, self._ledger = segment, ledger
        self._in_segment: EntryHeader | None = None
        """The header of the entry directly before in this segment."""
        self._last = NO_ENTRY
        """The last entry that was read of this segment."""

    def take(self, entries: Iterable[EntryWithCopies]) -> None:
        """Checks the next entries of the segment and their copies."""
        for each in entries:
            self._take(each)

    def _take(self, found: EntryWithCopies) -> None:
        entry, payload = found.entry, found.payload
        self.entries += bool(found.asked)
        self.copies += len(found.asked) - len(found.faults)
        header, body = None, memoryview(b"")
        if payload is not None:
            try:
                header, body = unpack_entry(payload)
            except UnknownEntry as error:
                self._found(FindingKind.FORM, entry, error.problem)
        unread = payload is None and bool(found.asked)
        self.runs.take(self._ledger, entry, found.asked, found.faults, header, unread=unread)
        if header is None:
            self._before = self._in_segment = None
            return
        self._check(entry, header, body)
        self._before = self._in_segment = header
        self._last, self.end_offset = entry, header.next_offset
        self._epoch = max(self._epoch, header.leader_epoch)

    def _check(self, entry: EntryId, header: EntryHeader, body: memoryview) -> None:
        problem = self._offsets_problem(entry, header)
        if problem is not None:
            self._found(FindingKind.OFFSETS, entry, problem)
        epoch, recorded = header.leader_epoch, self._segment.record.properties.get(EPOCH, header.leader_epoch)
        if epoch < self._epoch:
            self._found(FindingKind.EPOCH, entry, f"epoch {epoch} follows epoch {self._epoch}")
        elif epoch > recorded:
            self._found(FindingKind.EPOCH, entry, f"epoch {epoch} is above that of the metadata record, {recorded}")
        problem = self._header_problem(header)
        if problem is not None:
            self._found(FindingKind.HEADER, entry, problem)
        if header.kind == EntryKind.BATCH:
            problem = batch_problem(body, header)
            if problem is not None:
                self._found(FindingKind.BATCH, entry, problem)

    def _offsets_problem(self, entry: EntryId, header: EntryHeader) -> str | None:
        base, end = header.base_offset, header.next_offset
        if end < base or (end == base) != (header.kind == EntryKind.PRODUCERS):
            return f"it covers offsets from {base} up to {end}"
        if self._before is not None:
            expected = self._before.next_offset
        elif entry == 0:
            expected = self._segment.base_offset
        else:
            return self._start_problem(entry, header)
        if base == expected:
            return None
        return f"it begins at offset {base}, {'a gap' if base > expected else 'an overlap'}: {expected} is expected"

    def _start_problem(self, entry: EntryId, header: EntryHeader) -> str | None:
        """The problem of the first entry that remains of a segment."""
        record, base = self._segment.record, header.base_offset
        if base < self._segment.base_offset:
            return f"it begins at offset {base}, below its segment"
        start = max(self._segment.base_offset, record.properties.get(START_OFFSET, 0))
        if entry == record.start_entry and base > start:
            return f"it is the first one that remains and begins at offset {base}, after the start of the log, {start}"
        return None

    def _header_problem(self, header: EntryHeader) -> str | None:
        stable = header.last_stable_offset
        if stable > header.next_offset:
            return f"its last stable offset {stable} is above its next offset {header.next_offset}"
        if self._before is not None and stable < self._before.last_stable_offset:
            return f"its last stable offset {stable} is below the one before, {self._before.last_stable_offset}"
        if self._before is not None and header.transaction_id < self._before.transaction_id:
            return f"its transaction id {header.transaction_id} is below the one before, {self._before.transaction_id}"
        before = self._in_segment
        if before is not None and header.max_timestamp < before.max_timestamp:
            return f"its largest timestamp {header.max_timestamp} is below the one before, {before.max_timestamp}"
        return None

    def end(self) -> None:
        """All entries of the segment were taken."""
        self.runs.end_all()
        record, last = self._segment.record, self._in_segment
        if not record.sealed or last is None or self._last != record.last_entry:
            return
        for name, value in ((NEXT_OFFSET, last.next_offset), (MAX_TIMESTAMP, last.max_timestamp)):
            recorded = record.properties.get(name)
            if recorded != value:
                text = f"it ends its segment with {name} {value}, the metadata record says {recorded}"
                self._found(FindingKind.RECORD, self._last, text)

    def _found(self, kind: FindingKind, entry: EntryId, problem: str) -> None:
        self.runs.add(kind, problem, self._ledger, entry)
