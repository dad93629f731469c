from __future__ import annotations

from typing import Any

import pytest

from gnomon.bookie.entry import encode_entry
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.entry_store import ENTRIES, STATES
from gnomon.bookie.storage.removal import ENTRY_KEY, read_bound, remove_orphans

LEDGER = LedgerId(5)


class CountingTransaction:
    """An LMDB transaction that notes where its cursors begin to search."""

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction
        self.searched_from: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def cursor(self, db: Any) -> Any:
        return _CountingCursor(self, self._transaction.cursor(db=db))


class _CountingCursor:
    def __init__(self, transaction: CountingTransaction, cursor: Any) -> None:
        self._transaction, self._cursor = transaction, cursor

    def __enter__(self) -> _CountingCursor:
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def set_range(self, key: bytes) -> bool:
        self._transaction.searched_from.append(ENTRY_KEY.unpack(key)[1])
        return bool(self._cursor.set_range(key))


def store(environment: Any, sessions: dict[int, int]) -> None:
    """Stores a copy of each entry, written by the given session."""
    with environment.environment.begin(write=True, db=environment.databases[ENTRIES]) as transaction:
        for entry, session in sessions.items():
            value = encode_entry(LEDGER, EntryId(entry), SessionId(session), EntryId(entry - 1), 0, [b"x"])
            transaction.put(ENTRY_KEY.pack(LEDGER, entry), value)


def entries_left(environment: Any) -> list[int]:
    with environment.environment.begin(db=environment.databases[ENTRIES]) as transaction:
        return [ENTRY_KEY.unpack(key)[1] for key, _ in transaction.cursor()]


def begin_session(environment: Any, *bounds: tuple[int, int]) -> tuple[int, list[int]]:
    """Applies bounds of (first entry, session); returns the number of removed copies and where each search began."""
    given = [(EntryId(first), SessionId(session)) for first, session in bounds]
    entries, states = (environment.databases[name] for name in (ENTRIES, STATES))
    removed = 0
    searched_from: list[int] = []
    position: EntryId | None = EntryId(0)
    while position is not None:
        with environment.environment.begin(write=True, buffers=True) as begun:
            transaction = CountingTransaction(begun)
            gone, position = remove_orphans(transaction, entries, states, LEDGER, given, position)
            applied = read_bound(begun, states, LEDGER) == (given[-1][1], given[-1][0])
            assert applied == (position is None), "written down before the search was over, or not at all"
        removed += gone
        searched_from += transaction.searched_from
    return removed, searched_from


def test_copies_of_sessions_below_that_of_their_fragment_are_removed(environment: Any) -> None:
    store(environment, {0: 1, 1: 1, 2: 1, 3: 2, 4: 1})
    assert begin_session(environment, (0, 1), (2, 2))[0] == 2
    assert entries_left(environment) == [0, 1, 3]


def test_the_fragment_of_the_first_session_is_not_searched(
    environment: Any,
) -> None:
    store(environment, dict.fromkeys(range(10), 1))
    assert begin_session(environment, (0, 1), (10, 2)) == (0, [10])


def test_fragments_whose_bounds_were_applied_before_are_not_searched_again(environment: Any) -> None:
    store(environment, dict.fromkeys(range(10), 1))
    begin_session(environment, (0, 1), (5, 2))
    store(environment, {5: 2, 6: 2, 7: 2})
    assert begin_session(environment, (0, 1), (5, 2), (7, 3)) == (1, [7])


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 100])
def test_a_search_in_chunks_removes_the_same_copies_as_a_search_in_one_transaction(
    environment: Any, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:  # invariant 2
    monkeypatch.setattr(removal, "CHUNK_ENTRIES", chunk)
    store(environment, {0: 1, 1: 1, 2: 1, 3: 2, 4: 1, 5: 1, 6: 2, 7: 3, 9: 1, 12: 2, 13: 3})
    removed, searched_from = begin_session(environment, (0, 1), (2, 2), (5, 2), (6, 3))
    assert removed == 6
    assert entries_left(environment) == [0, 1, 3, 7, 13]
    assert (len(searched_from) > 3) == (chunk < 9)


def test_a_chunk_scans_a_fixed_number_of_entries_removed_or_not(environment: Any) -> None:  # invariant 2
    store(environment, {entry: 1 + entry % 2 for entry in range(2_500)})
    assert begin_session(environment, (0, 1), (0, 2)) == (1_250, [0, 1_000, 2_000])
