from __future__ import annotations

from gnomon.bookie.ids import NO_ENTRY, EntryId
from gnomon.bookie.ledgers.writer import LedgerWriter
from gnomon.bookie.record import Quorum


def test_entries_are_confirmed_in_order_at_the_ack_quorum() -> None:
    writer = LedgerWriter(Quorum(3, 3, 2), NO_ENTRY)
    first, second = writer.append(), writer.append()
    assert (first, second) == (0, 1)
    assert writer.stored(0, second) == NO_ENTRY
    assert writer.stored(1, second) == NO_ENTRY  # the second is complete, the first is not
    assert writer.stored(2, first) == NO_ENTRY
    assert writer.stored(2, first) == NO_ENTRY  # the same bookie twice counts once
    assert writer.stored(0, first) == second
    assert writer.stored(1, first) == second  # a late answer changes nothing


def test_adds_are_striped_over_the_ensemble() -> None:
    writer = LedgerWriter(Quorum(4, 2, 2), NO_ENTRY)
    assert [writer.targets(EntryId(entry)) for entry in range(5)] == [(0, 1), (1, 2), (2, 3), (3, 0), (0, 1)]


def test_a_lost_bookie_gets_no_adds_until_it_returns_and_its_earlier_answers_count() -> None:
    writer = LedgerWriter(Quorum(3, 3, 2), NO_ENTRY)
    entry = writer.append()
    assert writer.stored(0, entry) == NO_ENTRY
    assert writer.lost(0)
    assert not writer.lost(0)
    assert writer.targets(entry) == (1, 2)
    assert writer.writable
    assert writer.stored(2, entry) == entry
    assert writer.lost(1)
    assert not writer.writable
    second = writer.append()
    assert list(writer.regained(0)) == [second]
    assert writer.targets(second) == (2, 0)


def test_a_writer_that_ended_has_no_lost_bookies() -> None:
    writer = LedgerWriter(Quorum(3, 3, 2), NO_ENTRY)
    writer.lost(0)
    writer.lost(2)
    assert writer.lost_bookies == (0, 2)
    writer.ended()
    assert writer.lost_bookies == ()


def test_no_entry_is_confirmed_during_an_ensemble_change_and_replaced_bookies_do_not_count() -> None:
    writer = LedgerWriter(Quorum(3, 3, 2), NO_ENTRY)
    first, second, third = writer.append(), writer.append(), writer.append()
    writer.stored(0, first)
    writer.stored(1, first)
    writer.stored(0, second)
    writer.stored(2, third)
    writer.lost(0)
    assert writer.begin_change() == second
    assert writer.stored(1, second) == first
    assert writer.stored(1, third) == first  # complete, but its fragment is not recorded yet
    assert writer.end_change([0]) == (first, range(second, third + 1))
    assert writer.stored(0, second) == third


def test_an_abandoned_ensemble_change_confirms_the_entries_answered_meanwhile() -> None:
    writer = LedgerWriter(Quorum(3, 3, 2), NO_ENTRY)
    entry = writer.append()
    writer.lost(2)
    writer.begin_change()
    writer.stored(0, entry)
    writer.stored(1, entry)
    assert writer.end_change([])[0] == entry


def test_the_only_bookie_can_be_replaced() -> None:
    writer = LedgerWriter(Quorum(), NO_ENTRY)
    entry = writer.append()
    writer.lost(0)
    assert not writer.writable
    writer.begin_change()
    assert writer.stored(0, entry) == NO_ENTRY
    assert writer.end_change([0]) == (NO_ENTRY, range(entry, entry + 1))
    assert writer.stored(0, entry) == entry


def test_a_bookie_that_was_not_lost_can_be_regained() -> None:
    writer = LedgerWriter(Quorum(3, 3, 2), NO_ENTRY)
    assert list(writer.regained(1)) == []
    assert writer.lost_bookies == ()


def test_answers_about_confirmed_entries_are_forgotten() -> None:
    writer = LedgerWriter(Quorum(3, 3, 2), NO_ENTRY)
    for _ in range(3):
        entry = writer.append()
        for bookie in range(3):
            writer.stored(bookie, entry)
    assert writer.confirmed == 2
    assert writer._stored == {}
