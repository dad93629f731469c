from __future__ import annotations

from gnomon.bookie.ids import NO_ENTRY, EntryId
from gnomon.bookie.record import Quorum
from gnomon.bookie.writer import LedgerWriter


def test_entries_are_confirmed_in_order_at_the_ack_quorum() -> None:
    writer = LedgerWriter(Quorum(3, 3, 2), NO_ENTRY)
    first, second = writer.append(), writer.append()
    assert (first, second) == (0, 1)
    assert writer.stored(0, second) == NO_ENTRY
    assert writer.stored(1, second) == NO_ENTRY  # complete, but the first is not
    assert writer.stored(2, first) == NO_ENTRY
    assert writer.stored(2, first) == NO_ENTRY  # the same bookie twice counts once
    assert writer.stored(0, first) == second
    assert writer.stored(1, first) == second  # a late answer changes nothing


def test_adds_are_striped_over_the_ensemble() -> None:
    writer = LedgerWriter(Quorum(4, 2, 2), NO_ENTRY)
    assert [writer.write_set(EntryId(entry)) for entry in range(5)] == [(0, 1), (1, 2), (2, 3), (3, 0), (0, 1)]


def test_a_writer_is_broken_once_an_entry_has_too_few_bookies_left() -> None:
    writer = LedgerWriter(Quorum(3, 3, 2), NO_ENTRY)
    entry = writer.append()
    assert not writer.failed(0, entry)
    assert not writer.failed(0, entry)
    assert writer.failed(1, entry)


def test_one_failure_breaks_a_writer_that_awaits_every_copy() -> None:
    writer = LedgerWriter(Quorum(), NO_ENTRY)
    assert writer.failed(0, writer.append())


def test_a_failure_after_the_confirmation_changes_nothing() -> None:
    writer = LedgerWriter(Quorum(3, 3, 1), NO_ENTRY)
    entry = writer.append()
    assert writer.stored(2, entry) == entry
    assert not any(writer.failed(bookie, entry) for bookie in (0, 1))
