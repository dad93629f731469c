"""The entries of a planned read (numbers: invariants of `planned_entries`)."""

from __future__ import annotations

import pytest

from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum
from gnomon.log.entry import NO_ABORT, EntryKind, Offset, pack_header
from gnomon.log.plans.planned_entries import PlannedEntries, UnreadableEntry
from gnomon.log.plans.read_plan import PlannedSegment
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import Record, build_batch

RECORD = LedgerRecord(Quorum(), (Fragment(EntryId(0), SessionId(1), (BookieId("bookie-1"),)),))


def segment(next_offset: int, last: int, ledger: int = 7, first: int = 0) -> PlannedSegment:
    places = EntryId(first), EntryId(last)
    return PlannedSegment(Offset(0), LedgerId(ledger), RECORD, *places, Offset(next_offset), 0)


def batch(base: int, end: int) -> bytes:
    records = [Record(at, 0, None, b"value") for at in range(end - base)]
    return build_batch(records, base_timestamp=0, base_offset=base)


def entry(base: int, end: int, epoch: int = 0, kind: int = EntryKind.BATCH, body: bytes | None = None) -> memoryview:
    header = pack_header(kind, epoch, base, end, end, 0, 0, NO_ABORT)
    return memoryview(header + (batch(base, end) if body is None else body))


SNAPSHOT = entry(10, 10, kind=EntryKind.PRODUCERS, body=b"states")


class Taken:
    """The batches that are taken from entries, as pairs of offsets."""

    def __init__(self, start: int, stop: int) -> None:
        self.lost: list[tuple[int, int]] = []
        self.entries = PlannedEntries("orders-0", Offset(start), Offset(stop), lambda *lost: self.lost.append(lost))

    def take(self, planned: PlannedSegment, first: int, *payloads: memoryview) -> list[tuple[int, int]]:
        found = [self.entries.take(planned, EntryId(at), payload) for at, payload in enumerate(payloads, first)]
        headers = [parse_batch(each) for each in found if each is not None]
        return [(header.base_offset, header.next_offset) for header in headers]


def test_the_batches_of_a_range_are_taken_over_ledgers_and_the_others_are_left() -> None:  # 1, 4
    taken = Taken(7, 33)
    assert taken.take(segment(20, 3), 1, entry(5, 10), SNAPSHOT, entry(10, 20)) == [(5, 10), (10, 20)]
    assert (taken.entries.offset, taken.entries.done) == (20, False)
    assert taken.take(segment(99, 9, ledger=8), 0, entry(20, 30, epoch=3), entry(30, 35, epoch=3)) == [
        (20, 30),
        (30, 35),
    ]
    assert (taken.entries.offset, taken.entries.done) == (35, True)
    assert taken.take(segment(99, 9, ledger=8), 2, entry(35, 40, epoch=3)) == []
    assert taken.lost == []


def test_entries_before_the_range_are_left() -> None:  # 1
    assert Taken(10, 20).take(segment(20, 2), 0, entry(0, 5), entry(5, 10), entry(10, 20)) == [(10, 20)]


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (entry(12, 15), "it begins at offset 12, and 10 was expected"),
        (entry(8, 15), "it begins at offset 8, and the entry before it ends at 10"),
        (entry(10, 15), "it ends at offset 15, and the plan says 20"),
        (entry(10, 20, epoch=1), "its leader epoch is 1, and that of an entry before it is 2"),
        (entry(10, 9, 2, EntryKind.PRODUCERS, b""), "it ends at offset 9, and begins at 10"),
        (entry(10, 20, 2, body=batch(10, 19)), "its batch has the offsets from 10 on and below 19"),
        (entry(10, 20, 2, body=b"short"), "record batch at byte 0: 5 bytes left, a header takes 61"),
        (entry(10, 20, 2, EntryKind.CLEANED, b""), "it is of kind 4 (CLEANED), which this gnomon does not read"),
        (memoryview(b"short"), "it has 5 bytes, the header of a partition's entry has 54"),
        (memoryview(bytes([3]) + bytes(60)), "it has a header of version 3, this gnomon reads versions 1 and 2"),
    ],
)
def test_any_other_entry_is_an_error_that_names_its_place(payload: memoryview, problem: str) -> None:  # 1, 2, 3, 5
    taken = Taken(5, 20)
    taken.take(segment(20, 1), 0, entry(5, 10, epoch=2))
    with pytest.raises(UnreadableEntry) as caught:
        taken.take(segment(20, 1), 1, payload)
    place = "orders-0: entry 1 of ledger 7, with offsets from 10 on and below 20, cannot be read"
    assert str(caught.value) == f"{place}: {problem}"
    assert caught.value.offset == 10


def test_a_range_that_begins_too_late_is_an_error() -> None:  # 1
    with pytest.raises(UnreadableEntry, match="begins at offset 6, and 5 was expected"):
        Taken(5, 20).take(segment(20, 1), 0, entry(6, 10))


def test_offsets_of_deleted_entries_are_reported_once_and_the_rest_is_taken() -> None:  # 6
    taken = Taken(5, 40)
    taken.entries.deleted()
    taken.entries.deleted()
    assert taken.take(segment(40, 3), 2, entry(20, 30), entry(30, 40)) == [(20, 30), (30, 40)]
    assert taken.lost == [(5, 20)]
    with pytest.raises(UnreadableEntry, match="begins at offset 45, and 40 was expected"):
        taken.take(segment(60, 6), 4, entry(45, 50))


def test_after_a_deletion_entries_without_a_gap_lose_nothing() -> None:  # 6
    taken = Taken(5, 40)
    taken.entries.deleted()
    assert taken.take(segment(40, 3), 2, entry(0, 10), entry(10, 40)) == [(0, 10), (10, 40)]
    assert taken.lost == []


def test_a_range_that_was_deleted_up_to_its_end_is_lost() -> None:  # 6
    taken = Taken(5, 40)
    taken.entries.deleted()
    assert taken.take(segment(60, 3), 2, entry(45, 50)) == []
    assert (taken.lost, taken.entries.done) == ([(5, 40)], True)
    taken = Taken(5, 40)
    taken.entries.deleted()
    taken.entries.ended()
    assert (taken.lost, taken.entries.done) == ([(5, 40)], True)
