"""Replicas and copies (numbers: invariants of `replicas`)."""

from __future__ import annotations

import pytest

from gnomon.bookie.ids import BookieId, EntryId, SessionId
from gnomon.bookie.record import Fragment, LedgerRecord, LedgerState, Quorum
from gnomon.broker.topics.replicas import in_sync, missing_copies, replica_ids

ONE, TWO, THREE, FOUR = (BookieId(f"bookie-{number}") for number in range(1, 5))


@pytest.mark.parametrize(
    ("leader", "brokers", "copies", "expected"),
    [
        (2, [1, 2, 3], 3, [2, 3, 1]),  # 2: the leader first
        (3, [1, 2, 3, 4, 5], 3, [3, 4, 5]),
        (2, [1, 2, 3], 1, [2]),  # 1
        (2, [2, 1], 3, [2, 1, 3]),  # 2: then ids that no broker has
        (1, [1], 3, [1, 2, 3]),
        (7, [7, 2], 4, [7, 2, 1, 3]),
        (-1, [1, 2], 2, [1, 2]),  # no broker leads
    ],
)
def test_a_partition_has_a_replica_for_each_copy(
    leader: int, brokers: list[int], copies: int, expected: list[int]
) -> None:
    assert replica_ids(leader, brokers, copies) == expected


def test_the_last_replicas_are_out_of_sync_and_never_the_leader() -> None:  # 3
    assert [in_sync([2, 3, 1], missing) for missing in range(4)] == [[2, 3, 1], [2, 3], [2], [2]]


def fragment(first: int, *bookies: BookieId) -> Fragment:
    return Fragment(EntryId(first), SessionId(1), bookies)


def test_the_entry_that_lacks_most_copies_counts() -> None:  # 3
    record = LedgerRecord(Quorum(3, 3, 2), (fragment(0, ONE, TWO, THREE), fragment(10, ONE, TWO, FOUR)))
    assert missing_copies(record, set()) == 0
    assert missing_copies(record, {FOUR}) == 1
    assert missing_copies(record, {THREE}) == 1  # of entries 0 to 9
    assert missing_copies(record, {THREE, TWO}) == 2
    assert missing_copies(record, {THREE, FOUR}) == 1


def test_fragments_without_entries_do_not_count() -> None:
    replaced = LedgerRecord(Quorum(1, 1, 1), (fragment(0, ONE), fragment(0, TWO)))
    assert missing_copies(replaced, {ONE}) == 0
    trimmed = LedgerRecord(Quorum(1, 1, 1), (fragment(0, ONE), fragment(5, TWO)), start_entry=EntryId(5))
    assert missing_copies(trimmed, {ONE}) == 0
    empty = LedgerRecord(Quorum(1, 1, 1), (fragment(0, ONE),), state=LedgerState.SEALED)
    assert missing_copies(empty, {ONE}) == 0
    bare = LedgerRecord(Quorum(1, 1, 1), (fragment(0, ONE),))
    assert missing_copies(bare, {ONE}) == 1  # its next entry would lack it


def test_an_entry_of_a_striped_ledger_lacks_only_the_copies_of_its_own_bookies() -> None:
    record = LedgerRecord(Quorum(4, 2, 2), (fragment(0, ONE, TWO, THREE, FOUR),))
    assert missing_copies(record, {ONE, THREE}) == 1
    assert missing_copies(record, {ONE, TWO}) == 2
