"""The copies of one entry side by side (numbers: invariants of `compared_copies`)."""

from __future__ import annotations

from gnomon.bookie.copies.compared_copies import ABSENT, ComparedEntry, Copy, CopyFault, CopyFaultKind, compare_copies
from gnomon.bookie.entry import StoredEntry, decode_entry, encode_entry
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId

B1, B2, B3 = map(BookieId, ("b1", "b2", "b3"))


def copy(payload: bytes = b"payload", session: int = 1) -> StoredEntry:
    value = encode_entry(LedgerId(1), EntryId(5), SessionId(session), EntryId(4), 100, [payload])
    return decode_entry(LedgerId(1), EntryId(5), memoryview(value))


def compared(*copies: Copy) -> ComparedEntry:
    return compare_copies(EntryId(5), list(zip((B1, B2, B3), copies, strict=False)))


def kinds(found: ComparedEntry) -> dict[BookieId, CopyFaultKind]:
    return {bookie: fault.kind for bookie, fault in found.faults.items()}


def test_equal_copies_have_no_faults() -> None:  # 1
    found = compared(copy(), copy(), copy())
    assert (found.payload, found.faults, found.asked) == (b"payload", {}, [B1, B2, B3])


def test_a_copy_of_another_session_or_payload_differs_from_the_majority() -> None:  # 1, 2
    assert kinds(compared(copy(session=2), copy(), copy())) == {B1: CopyFaultKind.DIFFERENT}
    found = compared(copy(b"another"), copy(), copy())
    assert (found.payload, kinds(found)) == (b"payload", {B1: CopyFaultKind.DIFFERENT})


def test_without_a_majority_every_copy_is_a_fault() -> None:  # 2
    found = compared(copy(b"one"), copy(b"two"))
    assert found.payload == b"one"
    assert kinds(found) == {B1: CopyFaultKind.DIFFERENT, B2: CopyFaultKind.DIFFERENT}


def test_an_entry_without_a_sound_copy_has_a_fault_of_each_bookie() -> None:  # 3
    damaged = CopyFault(CopyFaultKind.DAMAGED, "why")
    found = compared(ABSENT, damaged, ABSENT)
    assert found.payload is None
    assert found.faults == {B1: ABSENT, B2: damaged, B3: ABSENT}


def test_faults_leave_the_sound_copy() -> None:  # 3
    found = compared(ABSENT, copy(), ABSENT)
    assert (found.payload, kinds(found)) == (b"payload", {B1: CopyFaultKind.MISSING, B3: CopyFaultKind.MISSING})


def test_an_entry_that_no_bookie_was_asked_for_has_neither_copy_nor_fault() -> None:
    assert compared() == ComparedEntry(EntryId(5), None, [], {})
