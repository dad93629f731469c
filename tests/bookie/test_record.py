from __future__ import annotations

import msgpack
import pytest

from gnomon.bookie.digest import password_digest, secret_of
from gnomon.bookie.errors import UnreadableRecord
from gnomon.bookie.ids import BookieId, EntryId, SessionId
from gnomon.bookie.record import (
    DigestType,
    Fragment,
    LedgerRecord,
    LedgerState,
    Quorum,
    change_ensemble,
    claim,
    closes_entries,
    decode_record,
    ledger_key,
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


def test_an_entry_is_on_the_bookies_from_its_number_on_around_the_ensemble() -> None:
    assert [Quorum(4, 3, 2).write_set(EntryId(entry)) for entry in range(5)] == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 0),
        (3, 0, 1),
        (0, 1, 2),
    ]


def test_a_change_of_the_ensemble_above_the_first_entry_of_the_last_fragment_closes_entries() -> None:
    record = change_ensemble(record_of(), EntryId(5), (BookieId("other"),))
    assert not closes_entries(record, EntryId(5))
    assert closes_entries(record, EntryId(6))
    assert not closes_entries(shrink(record, EntryId(9), 0), EntryId(9)), "all were shrunk away"


def test_a_bookie_lacks_the_entries_of_its_write_sets_that_are_in_none_of_its_runs() -> None:
    runs = [(EntryId(0), EntryId(3)), (EntryId(5), EntryId(5))]
    assert Quorum(3, 3, 2).lacking(1, range(2, 8), runs) == [4, 6, 7]
    assert Quorum(4, 2, 2).lacking(1, range(2, 10), runs) == [4, 8, 9], "entries 6 and 7 are on others"
    assert Quorum(3, 3, 2).lacking(1, range(2, 4), runs) == []


@pytest.mark.parametrize(("quorum", "fences", "negatives"), [(Quorum(5, 3, 2), 4, 2), (Quorum(3, 3, 3), 1, 1)])
def test_fences_and_negative_answers_exclude_an_acknowledgement(quorum: Quorum, fences: int, negatives: int) -> None:
    assert (quorum.fences_needed, quorum.negatives_needed) == (fences, negatives)


def moved(record: LedgerRecord, session: int, last_entry: int, *names: str) -> LedgerRecord:
    bookies = tuple(map(BookieId, names)) or None
    return claim(record, SessionId(session), EntryId(last_entry), bookies=bookies)


def test_the_fragment_of_an_entry_is_the_last_one_that_begins_at_or_before_it() -> None:
    record = moved(moved(record_of(), 2, 9, "b1"), 3, 19, "b2")
    assert [record.fragment_of(EntryId(entry)).bookies for entry in (0, 9, 10, 19, 20, 99)] == [
        ("b0",),
        ("b0",),
        ("b1",),
        ("b1",),
        ("b2",),
        ("b2",),
    ]
    assert shrink(record, EntryId(15), 0).fragment_of(EntryId(3)).bookies == ("b1",)
    assert record.bookies == ("b0", "b1", "b2")


def test_a_claim_keeps_the_last_ensemble_unless_it_is_given_another_one() -> None:
    record = moved(record_of(), 2, 9, "b7")
    assert moved(record, 3, 19).fragments[-1] == Fragment(EntryId(20), SessionId(3), (BookieId("b7"),))
    assert moved(record, 3, 19, "b8").fragments[-1].bookies == ("b8",)
    with pytest.raises(AssertionError, match="session 2 is not above 2"):
        moved(record, 2, 19)


def test_a_claim_continues_at_the_start_of_its_last_fragment_or_later_and_not_below_the_start() -> None:
    record = moved(record_of(), 2, 9)
    assert bounds(moved(record, 3, 9)) == [(0, 1), (10, 3)]
    with pytest.raises(AssertionError, match="begins at 10 was found to end at 8"):
        moved(record, 3, 8)
    with pytest.raises(AssertionError, match="was found to end at 10"):
        moved(shrink(record, EntryId(12), 0), 3, 10)
    assert bounds(moved(shrink(record, EntryId(12), 0), 3, 11)) == [(12, 3)]


def test_only_bounds_on_the_same_bookies_are_dropped_without_orphans() -> None:
    record = moved(moved(moved(record_of(), 2, 9), 3, 19, "b1"), 4, 29)
    claimed = claim(record, SessionId(5), EntryId(39), without_orphans=True)
    assert bounds(claimed) == [(0, 1), (10, 2), (20, 3), (40, 5)]
    assert bounds(claim(record, SessionId(5), EntryId(39))) == [(0, 1), (10, 2), (20, 3), (30, 4), (40, 5)]
    alone = claim(record_of(), SessionId(2), EntryId(9), without_orphans=True)
    assert bounds(alone) == [(0, 1), (10, 2)]


def test_a_bookie_is_replaced_in_the_fragment_that_was_copied_and_in_no_other() -> None:
    record = moved(record_of(Quorum(2, 2, 1)), 2, 9)
    changed = replace_bookie(record, EntryId(10), BookieId("b1"), BookieId("b9"))
    assert [fragment.bookies for fragment in changed.fragments] == [("b0", "b1"), ("b0", "b9")]


def test_an_ensemble_changes_at_the_start_of_its_own_fragment_or_later() -> None:
    record = moved(record_of(), 2, 9)
    at_start = change_ensemble(record, EntryId(10), (BookieId("b5"),))
    assert [fragment.bookies for fragment in at_start.fragments] == [("b0",), ("b5",)]
    with pytest.raises(AssertionError, match="below its own fragment"):
        change_ensemble(record, EntryId(9), (BookieId("b5"),))


def test_the_record_alone_proves_the_entries_below_its_last_fragment_confirmed() -> None:
    record = moved(record_of(), 2, 9)
    assert record.confirmed == 9
    assert shrink(record, EntryId(15), 0).confirmed == 14
    sealed = seal(record, EntryId(30), 77)
    assert (sealed.confirmed, sealed.sealed, sealed.length_bytes) == (30, True, 77)


def test_a_shrink_to_the_start_of_a_fragment_drops_those_before_it() -> None:
    record = moved(record_of(), 2, 9)
    assert bounds(shrink(record, EntryId(9), 5)) == [(0, 1), (10, 2)]
    shrunk = shrink(record, EntryId(10), 5)
    assert (bounds(shrunk), shrunk.start_entry, shrunk.length_bytes) == ([(10, 2)], 10, 5)


def test_every_field_of_a_record_is_decoded() -> None:
    record = LedgerRecord(
        Quorum(3, 3, 2),
        (Fragment(EntryId(5), SessionId(4), (BookieId("b0"), BookieId("b1"), BookieId("b2"))),),
        session=SessionId(6),
        state=LedgerState.SEALED,
        start_entry=EntryId(7),
        last_entry=EntryId(9),
        length_bytes=11,
        digest_type=DigestType.MAC,
        password_digest=b"digest",
        properties={"key": "value"},
    )
    assert decode_record(record.encode()) == record


def test_properties_are_kept_or_replaced() -> None:
    record = record_of().with_properties({"a": 1})
    assert record.properties == {"a": 1}
    assert record.with_properties(None) is record
    assert record.with_properties({}).properties == {}


@pytest.mark.parametrize(
    ("quorum", "valid"),
    [
        (Quorum(1, 1, 1), True),
        (Quorum(3, 3, 3), True),
        (Quorum(3, 2, 1), True),
        (Quorum(2, 3, 2), False),
        (Quorum(3, 2, 3), False),
        (Quorum(3, 3, 0), False),
    ],
)
def test_a_quorum_has_at_least_one_acknowledged_copy_and_no_more_copies_than_bookies(
    quorum: Quorum, valid: bool
) -> None:
    if valid:
        assert quorum.check() == quorum
    else:
        with pytest.raises(ValueError, match="ensemble >= write quorum >= ack quorum >= 1"):
            quorum.check()


def test_a_shrink_drops_every_fragment_that_ends_below_it() -> None:
    record = moved(moved(moved(record_of(), 2, 9), 3, 19), 4, 29)
    assert bounds(shrink(record, EntryId(25), 0)) == [(20, 3), (30, 4)]
    assert bounds(shrink(record, EntryId(35), 0)) == [(30, 4)]


def test_the_key_of_a_ledger_has_its_name() -> None:
    assert ledger_key("topics/x") == "ledgers/topics/x"
