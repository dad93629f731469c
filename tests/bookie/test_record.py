from __future__ import annotations

import msgpack
import pytest

from gnomon.bookie.digest import password_digest, secret_of
from gnomon.bookie.errors import UnreadableRecord
from gnomon.bookie.ids import BookieId, EntryId, SessionId
from gnomon.bookie.record import (
    Fragment,
    LedgerRecord,
    Quorum,
    change_ensemble,
    claim,
    decode_record,
    password_fits,
    replace_bookie,
    seal,
    shrink,
)

SINGLE = Quorum()


def record_of(quorum: Quorum = SINGLE) -> LedgerRecord:
    names = tuple(BookieId(f"b{index}") for index in range(quorum.ensemble_size))
    return LedgerRecord(quorum, (Fragment(EntryId(0), SessionId(1), names),))


def bounds(record: LedgerRecord) -> list[tuple[int, int]]:
    return [(fragment.first_entry, fragment.session) for fragment in record.fragments]


def test_a_record_decodes_to_what_was_encoded() -> None:
    record = seal(claim(record_of(Quorum(3, 3, 2)), SessionId(4), EntryId(10)), EntryId(20), 999)
    assert decode_record(record.encode()) == record


def test_a_record_of_a_newer_format_is_refused_whatever_its_fields() -> None:
    fields = msgpack.unpackb(record_of().encode())
    for said in ([99, *fields[1:]], [99, *fields[1:], "more"], [99]):
        with pytest.raises(UnreadableRecord, match="format 99, this version reads format 1; upgrade it"):
            decode_record(msgpack.packb(said))


def test_a_value_that_is_no_record_is_refused() -> None:
    format_number, *fields = msgpack.unpackb(record_of().encode())
    for said in (5, None, [], {}, [format_number], [format_number, "ajar", *fields[1:]], [format_number, *[None] * 10]):
        with pytest.raises(UnreadableRecord, match="cannot be read"):
            decode_record(msgpack.packb(said))
    for value in (b"", b"\xc1", b"\x9b\x01", b"no record"):
        with pytest.raises(UnreadableRecord, match="cannot be read"):
            decode_record(value)


def test_a_claim_bounds_the_entries_after_the_recovered_tail() -> None:
    record = claim(record_of(Quorum(3, 3, 2)), SessionId(2), EntryId(9))
    assert bounds(record) == [(0, 1), (10, 2)]
    assert record.fragment_of(EntryId(9)).session == 1
    assert record.fragment_of(EntryId(10)).session == 2


def test_a_ledger_that_ends_below_its_last_fragment_is_never_claimed() -> None:
    record = claim(record_of(Quorum(3, 3, 2)), SessionId(2), EntryId(9))
    with pytest.raises(AssertionError, match="was found to end at 8"):
        claim(record, SessionId(3), EntryId(8))


def test_bounds_whose_orphans_every_bookie_has_removed_are_dropped() -> None:
    record = record_of(Quorum(3, 3, 2))
    for number in range(2, 1000):
        record = claim(record, SessionId(number), EntryId(10 * number), without_orphans=number > 2)
        assert len(record.fragments) <= 3
    assert bounds(record) == [(0, 1), (9991, 999)]


def test_a_bound_stays_while_a_bookie_may_have_orphans() -> None:
    record = record_of(Quorum(3, 3, 2))
    for number in range(2, 5):
        record = claim(record, SessionId(number), EntryId(10 * number))
    assert bounds(record) == [(0, 1), (21, 2), (31, 3), (41, 4)]


def test_a_change_of_the_ensemble_begins_a_fragment_of_the_same_session() -> None:
    record = claim(record_of(Quorum(2, 2, 2)), SessionId(2), EntryId(9))
    names = (BookieId("b0"), BookieId("b7"))
    changed = change_ensemble(record, EntryId(12), names)
    assert bounds(changed) == [(0, 1), (10, 2), (12, 2)]
    assert changed.fragment_of(EntryId(12)).bookies == names
    assert change_ensemble(changed, EntryId(12), names) == changed
    repaired = replace_bookie(changed, EntryId(10), BookieId("b1"), BookieId("b9"))
    assert [fragment.bookies for fragment in repaired.fragments] == [("b0", "b1"), ("b0", "b9"), ("b0", "b7")]


def test_a_thousand_claims_without_an_append_leave_the_record_no_larger() -> None:
    record = claim(record_of(Quorum(3, 3, 2)), SessionId(2), EntryId(9))
    size = len(record.encode())
    for number in range(3, 1003):
        record = claim(record, SessionId(number), EntryId(9))
    assert len(record.encode()) <= size + 4


def test_a_shrink_never_moves_back_and_drops_fragments_below_it() -> None:
    record = claim(record_of(Quorum(3, 3, 2)), SessionId(2), EntryId(9))
    shrunk = shrink(record, EntryId(15), 500)
    assert (shrunk.start_entry, bounds(shrunk)) == (15, [(10, 2)])
    assert shrink(shrunk, EntryId(3), 500).start_entry == 15


def test_a_password_is_kept_as_a_digest_that_fits_no_other() -> None:
    record = LedgerRecord(Quorum(), record_of().fragments, password_digest=password_digest("a", secret_of(b"secret")))
    assert b"secret" not in record.encode()
    assert password_fits(record, "a", secret_of(b"secret"))
    assert not password_fits(record, "a", secret_of(b""))
    assert not password_fits(record, "a", secret_of(b"Secret"))
    assert password_fits(record_of(), "a", secret_of(b""))
    assert not password_fits(record_of(), "a", secret_of(b"secret"))


def test_an_invalid_quorum_is_refused() -> None:
    for quorum in (Quorum(1, 2, 1), Quorum(3, 2, 3), Quorum(1, 1, 0)):
        with pytest.raises(ValueError, match="write quorum"):
            quorum.check()
