"""Calls that tests make to an entry store, for one ledger."""

from __future__ import annotations

from typing import Any

from gnomon.bookie.bookie import FenceResult
from gnomon.bookie.entry import encode_entry
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.storage.entry_store import ENTRIES, EntryStore
from gnomon.bookie.storage.removal import ENTRY_KEY

LEDGER = LedgerId(5)
Answers = list[tuple[int, Exception | None]]


def add(store: EntryStore, entry: int, session: int = 1, payload: bytes = b"x", ledger: LedgerId = LEDGER) -> Answers:
    """Queues an add; its answer appears in the returned list."""
    answers: Answers = []
    at, by, confirmed = EntryId(entry), SessionId(session), EntryId(entry - 1)
    value = encode_entry(ledger, at, by, confirmed, 0, [payload])
    store.add(ledger, at, by, confirmed, value, lambda answered, error: answers.append((answered, error)))
    return answers


def fence(store: EntryStore, session: int, ledger: LedgerId = LEDGER) -> list[tuple[FenceResult | None, Any]]:
    answers: list[tuple[FenceResult | None, Any]] = []
    store.fence(ledger, SessionId(session), lambda result, error: answers.append((result, error)))
    return answers


def read(store: EntryStore, entry: int, minimum: int = 0, ledger: LedgerId = LEDGER) -> bytes:
    with store.view() as view:
        return bytes(view.get(ledger, EntryId(entry), SessionId(minimum)))


def flip(environment: Any, entry: int) -> None:
    """Changes one bit of an entry on disk."""
    with environment.environment.begin(write=True, db=environment.databases[ENTRIES]) as transaction:
        value = bytearray(transaction.get(ENTRY_KEY.pack(LEDGER, entry)))
        value[-1] ^= 1
        transaction.put(ENTRY_KEY.pack(LEDGER, entry), bytes(value))


def put_copy(store: EntryStore, entry: int, written_by: int, session: int) -> list[Any]:
    """Puts a copy of an entry of session `written_by` under `session`; its answer appears in the returned list."""
    value = encode_entry(LEDGER, EntryId(entry), SessionId(written_by), EntryId(entry - 1), 0, [b"copy"])
    answers: list[Any] = []
    store.put_copies(LEDGER, SessionId(session), [(EntryId(entry), value)], lambda _, error: answers.append(error))
    return answers


def stored_entries(environment: Any) -> int:
    """The number of entries on the disk of a bookie."""
    with environment.environment.begin(db=environment.databases[ENTRIES]) as transaction:
        entries: int = transaction.stat()["entries"]
        return entries
