"""Removes ledgers, orphans and ranges of entries from the store. Pure: functions over one LMDB transaction.

1. The removal of a range is recorded before its first entry is removed: a mark `g<ledger> -> end` means that the
   entries below `end` are to be removed. So the removal continues after a crash.
2. One call removes, or looks at, at most CHUNK_ENTRIES entries: more in one transaction would delay the adds after it.
   A search for orphans (copies that the ledger's record excludes) that a crash interrupts begins again: only a
   completed search is recorded.
3. After the last entry, a further transaction removes the mark and a deleted ledger's other keys. LMDB reuses freed
   pages only two commits later: without that transaction a full store could not use the space freed last.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from crc32c import crc32c

from gnomon.bookie.entry import session_of
from gnomon.bookie.ids import ENTRY_MAX, FIRST_SESSION, SESSION_MAX, EntryId, LedgerId, SessionId

ENTRY_KEY: Final = struct.Struct(">QQ")
NUMBER: Final = struct.Struct(">Q")
CHUNK_ENTRIES: Final = 1_000
"""Measured: with this many, transactions stay below 2 ms at the median."""

PROMISED: Final = b"p"
"""Prefix of the keys that hold the highest session promised for a ledger."""
BOUND: Final = b"b"
"""Prefix of the keys that hold the last session whose bounds were applied to a ledger, and its first entry."""
GOING: Final = b"g"
"""Prefix of the keys that mark the entries to remove, as the end (exclusive) of the range."""
CHECKSUM: Final = struct.Struct(">I")
_STATE_BYTES: Final = {PROMISED: NUMBER.size, BOUND: ENTRY_KEY.size, GOING: NUMBER.size}
"""The sizes of the facts without their checksums."""


def state_key(kind: bytes, ledger: LedgerId) -> bytes:
    """The key of one fact about a ledger in the state database."""
    return kind + NUMBER.pack(ledger)


def read_bound(transaction: Any, states: Any, ledger: LedgerId) -> tuple[SessionId, EntryId]:
    """The last session whose bounds were applied here, and the first entry it wrote; zeros if there is none."""
    value = transaction.get(state_key(BOUND, ledger), db=states)
    if value is None:
        return SessionId(0), EntryId(0)
    session, first_entry = ENTRY_KEY.unpack_from(value)
    return SessionId(session), EntryId(first_entry)


def last_bound(bounds: Sequence[tuple[EntryId, SessionId]]) -> tuple[SessionId, EntryId]:
    """The last session of a record, and the first entry of that session's first fragment."""
    session = bounds[-1][1]
    return session, next(first_entry for first_entry, written_by in bounds if written_by == session)


def remove_orphans(
    transaction: Any,
    entries: Any,
    states: Any,
    ledger: LedgerId,
    bounds: Sequence[tuple[EntryId, SessionId]],
    position: EntryId,
) -> tuple[int, EntryId | None]:
    """Removes copies that the bounds of a ledger's record exclude, and records that all bounds were applied.

    Bounds up to the last session applied before are skipped: copies that they exclude cannot have arrived since. The
    bound of the first session excludes nothing, so its fragment, which may be large, is not searched.

    Args:
        bounds: first entry and session of each fragment, in order.
        position: the end of the previous chunk; the first one begins at entry 0.

    Returns:
        The number of removed copies, and the first entry of the next chunk; None if no chunk is left.
    """
    applied, _ = read_bound(transaction, states, ledger)
    removed, entries_max = 0, CHUNK_ENTRIES
    ends = [*(first_entry for first_entry, _ in bounds[1:]), ENTRY_MAX]
    with transaction.cursor(db=entries) as cursor:
        for (first_entry, session), end in zip(bounds, ends, strict=True):
            if session > max(applied, FIRST_SESSION) and end > position:
                begin = EntryId(max(first_entry, position))
                gone, seen, position = _remove_below(cursor, ledger, begin, end, session, entries_max)
                removed, entries_max = removed + gone, entries_max - seen
                if position < end:
                    return removed, position
    session, first_entry = last_bound(bounds)
    if session > applied:
        put_state(transaction, states, BOUND, ledger, ENTRY_KEY.pack(session, first_entry))
    return removed, None


def _remove_below(
    cursor: Any, ledger: LedgerId, begin: EntryId, end: EntryId, session: SessionId, entries_max: int
) -> tuple[int, int, EntryId]:
    """Removes copies of lower sessions; returns the numbers removed and examined, and the first entry not examined."""
    removed = seen = 0
    stop = ENTRY_KEY.pack(ledger, end)
    found = cursor.set_range(ENTRY_KEY.pack(ledger, begin))
    while found and bytes(cursor.key()) < stop:
        if seen == entries_max:
            return removed, seen, EntryId(ENTRY_KEY.unpack(cursor.key())[1])
        seen += 1
        if session_of(cursor.value()) < session:
            cursor.delete()
            found = bool(cursor.key())  # empty once the last one of all is removed
            removed += 1
        else:
            found = cursor.next()
    return removed, seen, end


def read_number(transaction: Any, states: Any, kind: bytes, ledger: LedgerId) -> int:
    """A fact about a ledger, 0 if nothing is known."""
    value = transaction.get(state_key(kind, ledger), db=states)
    return 0 if value is None else int(NUMBER.unpack_from(value)[0])


def put_state(transaction: Any, states: Any, kind: bytes, ledger: LedgerId, value: bytes) -> None:
    """Stores a fact about a ledger, with its checksum: a wrong one could remove entries, or undo a promise."""
    key = state_key(kind, ledger)
    transaction.put(key, value + CHECKSUM.pack(crc32c(key + value)), db=states)


def damaged_state(transaction: Any, states: Any) -> LedgerId | None:
    """The first ledger with a damaged fact, None if there is none. Format 3 of the data directory had no checksums."""
    with transaction.cursor(db=states) as cursor:
        for view, stored in cursor:
            key = bytes(view)
            size = _STATE_BYTES.get(key[:1])
            if len(key) != 1 + NUMBER.size or size is None or len(stored) == size:
                continue
            value = bytes(stored[:size])
            if bytes(stored[size:]) != CHECKSUM.pack(crc32c(key + value)):
                return LedgerId(NUMBER.unpack(key[1:])[0])
    return None


def mark_range(transaction: Any, states: Any, ledger: LedgerId, end: EntryId) -> None:
    """Records that the entries of `ledger` below `end` are to be removed; a higher mark stays."""
    if end > read_number(transaction, states, GOING, ledger):
        put_state(transaction, states, GOING, ledger, NUMBER.pack(end))


def marked_ranges(transaction: Any, states: Any) -> list[tuple[LedgerId, EntryId]]:
    """Every range that is still to be removed."""
    marks = []
    with transaction.cursor(db=states) as cursor:
        found = cursor.set_range(GOING)
        while found and bytes(cursor.key()[:1]) == GOING:
            marks.append((LedgerId(NUMBER.unpack(cursor.key()[1:])[0]), EntryId(NUMBER.unpack_from(cursor.value())[0])))
            found = cursor.next()
    return marks


def remove_chunk(transaction: Any, entries: Any, states: Any, ledger: LedgerId) -> int:
    """Removes up to CHUNK_ENTRIES of a ledger's marked entries, lowest first.

    Returns:
        The number removed; below CHUNK_ENTRIES nothing marked is left, and `remove_mark` is due.
    """
    end = read_number(transaction, states, GOING, ledger)
    if end == 0:
        return 0
    removed = 0
    stop = ENTRY_KEY.pack(ledger, end)
    with transaction.cursor(db=entries) as cursor:
        found = cursor.set_range(ENTRY_KEY.pack(ledger, 0))
        while found and removed < CHUNK_ENTRIES and bytes(cursor.key()) < stop:
            cursor.delete()
            found = bool(cursor.key())  # empty once the last one of all is removed
            removed += 1
    return removed


def has_below(transaction: Any, entries: Any, ledger: LedgerId, end: EntryId) -> bool:
    """Whether an entry of a ledger below `end` is stored."""
    with transaction.cursor(db=entries) as cursor:
        return cursor.set_range(ENTRY_KEY.pack(ledger, 0)) and bytes(cursor.key()) < ENTRY_KEY.pack(ledger, end)


def remove_mark(transaction: Any, entries: Any, states: Any, ledger: LedgerId, forget: bool) -> bool:
    """Removes a mark if its range is empty; returns whether it was. The range may have grown since the last chunk.

    Args:
        forget: whether all traces of a deleted ledger are removed; otherwise all sessions of the ledger stay refused.
    """
    end = EntryId(read_number(transaction, states, GOING, ledger))
    if has_below(transaction, entries, ledger, end):
        return False
    transaction.delete(state_key(GOING, ledger), db=states)
    if end == ENTRY_MAX:
        if forget:
            transaction.delete(state_key(PROMISED, ledger), db=states)
        else:
            save_promise(transaction, states, ledger, SESSION_MAX)
        transaction.delete(state_key(BOUND, ledger), db=states)
    return True


def save_promise(transaction: Any, states: Any, ledger: LedgerId, session: SessionId) -> None:
    """Records that adds below `session` are refused; a higher promise stays."""
    if session > read_number(transaction, states, PROMISED, ledger):
        put_state(transaction, states, PROMISED, ledger, NUMBER.pack(session))


def stored_ledgers(transaction: Any, entries: Any, states: Any, first: LedgerId, ledgers_max: int) -> list[LedgerId]:
    """Up to `ledgers_max` ledgers from `first` on, in order, that have an entry or a promise here; by two seeks per
    ledger."""
    found: list[LedgerId] = []
    with transaction.cursor(db=entries) as written, transaction.cursor(db=states) as promised:
        while len(found) < ledgers_max:
            here: list[int] = []
            if written.set_range(ENTRY_KEY.pack(first, 0)):
                here.append(NUMBER.unpack(written.key()[:8])[0])
            if promised.set_range(state_key(PROMISED, first)) and bytes(promised.key()[:1]) == PROMISED:
                here.append(NUMBER.unpack(promised.key()[1:])[0])
            if not here:
                break
            found.append(LedgerId(min(here)))
            first = LedgerId(found[-1] + 1)
    return found
