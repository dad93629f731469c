from __future__ import annotations

from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.reader import EntryRead, ReadVerdict
from gnomon.bookie.record import Quorum


def test_each_bookie_is_asked_once_in_the_order_of_the_write_set() -> None:
    search = EntryRead(Quorum(4, 3, 2), EntryId(3))
    assert [search.next_bookie() for _ in range(4)] == [3, 0, 1, None]


def test_an_entry_is_absent_only_on_enough_explicit_answers() -> None:
    search = EntryRead(Quorum(3, 3, 2), EntryId(0))
    assert search.next_bookie() == 0
    search.negative()
    assert search.next_bookie() == 1  # bookie 1 answers with an error
    assert search.next_bookie() == 2
    search.negative()
    assert search.next_bookie() is None
    assert search.verdict is ReadVerdict.ABSENT


def test_errors_do_not_count_as_answers() -> None:
    search = EntryRead(Quorum(3, 3, 2), EntryId(0))
    while search.next_bookie() is not None:
        pass
    assert search.verdict is ReadVerdict.UNREACHABLE


def test_only_usable_bookies_are_asked() -> None:
    search = EntryRead(Quorum(3, 3, 2), EntryId(1), (0, 1))
    assert [search.next_bookie() for _ in range(3)] == [1, 0, None]


def test_no_bookie_is_asked_after_enough_explicit_answers() -> None:
    read = EntryRead(Quorum(3, 3, 3), EntryId(0))
    assert read.next_bookie() == 0
    read.negative()
    assert read.next_bookie() is None
