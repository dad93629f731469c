"""One segment of a partition's log: a ledger, and searches in it by offset, time and epoch.

1. Every search is a bisection over entry headers, whose values never fall along the ledger (`entry` invariant 2). There
   is no index to lose.
2. The position of a sequential reader is remembered, so that its next read needs no search.
3. An entry that is damaged, or that this gnomon does not read (`entry` invariant 5), hides no other entry from
   searches, which skip it. A read returns the entries before it, and raises an error when it begins there.
4. If the ledger's bookies are in other processes, a reading call may raise `NotInMemory` and change nothing. The caller
   loads the entry and calls again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from gnomon.bookie.errors import DigestMismatch, LedgerError
from gnomon.bookie.ids import NO_ENTRY
from gnomon.bookie.ledgers.catalog import (
    EntryCache,
    EntryId,
    EntryView,
    Ledger,
    LocalView,
    LocalViews,
    NotInMemory,
    is_local,
)
from gnomon.bookie.record import LedgerRecord
from gnomon.log.entry import (
    BATCH_AT,
    NO_TIMESTAMP,
    EntryHeader,
    EntryKind,
    LeaderEpoch,
    Offset,
    UnknownEntry,
    check_form,
    unpack_entry,
    unpack_reach,
)
from gnomon.log.segment_record import MAX_TIMESTAMP, NEXT_OFFSET, size_and_youngest
from gnomon.wire.kafka.batch import parse_batch

POSITIONS_MAX = 4096
"""Reading positions remembered per segment; a search costs some twenty look-ups."""
NEAR_ENTRIES = 64


class Segment:
    """A run of offsets from `base_offset` on, in one ledger.

    `next_offset`, `max_timestamp`, `youngest_ms` and `size_bytes` are those of a sealed segment; the log has those of
    the open one.
    """

    def __init__(self, ledger: Ledger, base_offset: Offset, cache: EntryCache) -> None:
        self.ledger = ledger
        self.base_offset = base_offset
        self.next_offset: Offset | None = None
        self.max_timestamp = NO_TIMESTAMP
        self.youngest_ms = NO_TIMESTAMP
        self.size_bytes = 0
        self._positions: dict[int, EntryId] = {}
        self._cache = cache
        self._cached = cache.view(ledger)
        self._told: Callable[[EntryId, bytes], None] | None = None
        self._look_where(ledger.record)

    def _look_where(self, record: LedgerRecord) -> None:
        self._placed_by = record
        self._local = is_local(self.ledger)
        keep, told = None if self._local else self._cache.keeper(self.ledger), self._told
        if keep is None or told is None:
            self.ledger.keep = keep or told
            return

        def keep_and_tell(entry: EntryId, value: bytes) -> None:
            keep(entry, value)
            told(entry, value)

        self.ledger.keep = keep_and_tell

    def tell(self, told: Callable[[EntryId, bytes], None] | None) -> None:
        """Sets the callback for each entry appended here, in stored form, after its confirmation."""
        self._told = told
        self._look_where(self.ledger.record)

    def sealed(self, next_offset: Offset, max_timestamp: int, youngest_ms: int, size_bytes: int) -> None:
        """The segment is sealed; retention uses `youngest_ms` and `size_bytes`."""
        self.next_offset = next_offset
        self.max_timestamp = max_timestamp
        self.youngest_ms = youngest_ms
        self.size_bytes = size_bytes

    def sealed_as_recorded(self) -> None:
        """As `sealed`, with the values in its ledger's record."""
        properties = self.ledger.properties
        size_bytes, youngest_ms = size_and_youngest(self.ledger.record)
        self.sealed(Offset(properties[NEXT_OFFSET]), properties[MAX_TIMESTAMP], youngest_ms, size_bytes)

    def view(self) -> EntryView:
        """Reading without waiting, for a `with` block that does not await."""
        if self.ledger.record is not self._placed_by:
            self._look_where(self.ledger.record)
        if not self._local:
            return self._cached
        view = self.ledger.view()
        assert isinstance(view, LocalView), f"the bookie of ledger {self.ledger.name!r} has left this process"
        return view

    def view_among(self, views: LocalViews) -> EntryView:
        """A view like `view`, as one of many that are valid as long as `views`."""
        if self.ledger.record is not self._placed_by:
            self._look_where(self.ledger.record)
        if not self._local:
            return self._cached
        view = views.of(self.ledger)
        assert view is not None, f"the bookie of ledger {self.ledger.name!r} has left this process"
        return view

    def entry_of(self, view: EntryView, offset: Offset) -> EntryId:
        """The entry whose batch covers `offset`, which must be in the segment."""
        entry = self._positions.get(offset)
        if entry is not None:
            return max(entry, self.ledger.start_entry)  # entries without records lay between, and were deleted since
        low = self.ledger.start_entry if self._local else self._near_end(view, offset)
        entry = self.first_entry(view, lambda header: header.next_offset > offset, low)
        sound = self._sound(view, entry, EntryId(self.ledger.last_add_confirmed + 1))
        return entry if sound is None or sound[1].base_offset > offset else sound[0]

    def last_entry(self, view: EntryView, end: Offset, high_watermark: Offset) -> tuple[EntryId, Offset]:
        """The last of the entries with the records below `end`, and the offset after it, at most `high_watermark`.

        Unreadable entries that may have such records are among them; the offset after one of these is `end`.

        Args:
            end: above the first offset of the segment; above neither its last offset plus one nor `high_watermark`.
        """
        low = self.ledger.start_entry if self._local else self._near_end(view, Offset(end - 1))
        entry = self.first_entry(view, lambda header: header.next_offset >= end, low)
        stop = EntryId(self.ledger.last_add_confirmed + 1)
        sound = self._sound(view, entry, stop)
        if sound is not None and sound[1].next_offset <= high_watermark:
            return sound[0], sound[1].next_offset
        return EntryId((stop if sound is None else sound[0]) - 1), end

    def _near_end(self, view: EntryView, offset: Offset) -> EntryId:
        """An entry at or before the one with `offset`: one of the last entries, if they are in memory, else the first.

        A reader that starts at the end thus causes no request to a bookie.
        """
        start, end = self.ledger.start_entry, self.ledger.last_add_confirmed + 1
        back = 1
        while end - back > start and back <= NEAR_ENTRIES:
            try:
                if self.header(view, EntryId(end - back)).base_offset <= offset:
                    return EntryId(end - back)
            except (NotInMemory, DigestMismatch, UnknownEntry):
                break
            back *= 2
        return start

    def first_entry(self, view: EntryView, rule: Callable[[EntryHeader], bool], low: EntryId = NO_ENTRY) -> EntryId:
        """The first remaining entry for which `rule` holds; one past the last entry if it holds for none.

        If `rule` holds for an entry, it must hold for all later entries.

        If damaged or unknown entries are right before that entry, returns the first of them: `rule` may hold for it.

        Args:
            low: `rule` holds for no entry before this one.
        """
        low, high = max(low, self.ledger.start_entry), EntryId(self.ledger.last_add_confirmed + 1)
        while low < high:
            middle = EntryId((low + high) // 2)
            sound = self._sound(view, middle, high)
            if sound is None or rule(sound[1]):
                high = middle
            else:
                low = EntryId(sound[0] + 1)
        return low

    def _sound(self, view: EntryView, entry: EntryId, end: EntryId) -> tuple[EntryId, EntryHeader] | None:
        """The first entry from `entry` on and below `end` whose header can be read, with that header."""
        while entry < end:
            try:
                return entry, self.header(view, entry)
            except (DigestMismatch, UnknownEntry):
                entry = EntryId(entry + 1)
        return None

    def header(self, view: EntryView, entry: EntryId) -> EntryHeader:
        """The header of an entry; raises as `entry` does."""
        return self.entry(view, entry)[0]

    def entry(self, view: EntryView, entry: EntryId) -> tuple[EntryHeader, memoryview]:
        """The header of an entry and the bytes after it, as valid as the view.

        Raises:
            UnknownEntry: this gnomon does not read it.
            LedgerError, NotInMemory: as `view.payload`.
        """
        payload = view.payload(entry)
        try:
            return unpack_entry(payload)
        except UnknownEntry as error:
            raise error.at(entry, self.ledger.name) from None

    def read(
        self, view: EntryView, offset: Offset, end_offset: Offset, bytes_max: int, *, at_least_one: bool
    ) -> tuple[list[memoryview], int]:
        """The batches from the one that covers `offset` on, below `end_offset`; views into the ledger's memory.

        Args:
            bytes_max: bytes of all batches together.
            at_least_one: return the first batch even if it is larger.

        Returns:
            The batches and their bytes; if one is damaged or not in memory, those before it.

        Raises:
            LedgerError, NotInMemory: the first batch could not be read.
        """
        chunks: list[memoryview] = []
        size = 0
        entry = self.entry_of(view, offset)
        last = self.ledger.last_add_confirmed
        position = offset
        payload_of, batch_at = view.payload, BATCH_AT.get
        while entry <= last:
            try:
                payload = payload_of(entry)
                form, next_offset = unpack_reach(payload)
                begin = batch_at(form)
                if begin is None:
                    self._check_form(form, entry)
            except (LedgerError, NotInMemory):
                if not chunks:
                    raise
                break
            if next_offset > end_offset:
                break
            if begin is not None:
                batch = payload[begin:]
                more = size + len(batch)
                if more > bytes_max and (chunks or not at_least_one):
                    break
                chunks.append(batch)
                size, position = more, next_offset
            entry = EntryId(entry + 1)
        self.remember(position, entry)
        return chunks, size

    def _check_form(self, form: int, entry: EntryId) -> None:
        try:
            check_form(form)
        except UnknownEntry as error:
            raise error.at(entry, self.ledger.name) from None

    def end_of_epoch(self, view: EntryView, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """The largest epoch <= `epoch` here and the offset after its last record; None when all are newer."""
        entry = self.first_entry(view, lambda header: header.leader_epoch > epoch)
        if entry <= self.ledger.last_add_confirmed:
            with suppress(DigestMismatch):
                self.header(view, entry)  # raises for an unknown entry, which may be of the epoch
        if entry == self.ledger.start_entry:
            return None
        header = self.header(view, EntryId(entry - 1))
        return header.leader_epoch, header.next_offset

    def largest_timestamp(self, view: EntryView, entry: EntryId, stop: EntryId) -> tuple[int, EntryId]:
        """The largest record timestamp of the batches from `entry` up to `stop`, -1 if there are none.

        Returns:
            The timestamp, and the entry to continue from: `stop`, or an entry before it that is not in memory.
        """
        best = -1
        for number in map(EntryId, range(entry, stop)):
            try:
                header, body = self.entry(view, number)
            except NotInMemory:
                if number == entry:
                    raise
                return best, number
            if header.kind == EntryKind.BATCH:
                best = max(best, parse_batch(body).max_timestamp)
        return best, stop

    def remember(self, offset: int, entry: EntryId) -> None:
        """Remembers that a reader continues at `offset` with `entry`."""
        positions = self._positions
        if len(positions) >= POSITIONS_MAX:
            del positions[next(iter(positions))]
        positions[offset] = entry
