"""Stores copies of entries from other bookies, in one transaction.

1. A copy never replaces a copy of a higher session: a call that would do so stores nothing.
2. A damaged copy may be replaced by any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnomon.bookie.entry import decode_entry
from gnomon.bookie.errors import Fenced, LedgerError
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.storage.removal import ENTRY_KEY


def put_copies(
    transaction: Any,
    entries: Any,
    ledger: LedgerId,
    copies: Sequence[tuple[EntryId, bytes]],
    written_by: Sequence[SessionId],
) -> Fenced | None:
    """Stores copies of one ledger's entries, or returns the refusal.

    Args:
        entries: the database of entries.
        copies: entry ids and encoded entries.
        written_by: the session that wrote each.
    """
    for (entry, _), session in zip(copies, written_by, strict=True):
        here = transaction.get(ENTRY_KEY.pack(ledger, entry), db=entries)
        written = None if here is None else _session_written(ledger, entry, here)
        if written is not None and written > session:
            return Fenced(ledger, session, written)
    for entry, value in copies:
        transaction.put(ENTRY_KEY.pack(ledger, entry), value, db=entries)
    return None


def _session_written(ledger: LedgerId, entry: EntryId, value: memoryview) -> SessionId | None:
    """The session that wrote a stored value; None for a damaged one."""
    try:
        return decode_entry(ledger, entry, memoryview(value)).session
    except LedgerError:
        return None
