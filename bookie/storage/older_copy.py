"""The rule for a bookie whose store is an older copy of itself: entries and promises that it acknowledged may be gone.

Pure: functions over records and over one LMDB transaction. `older_store` carries the rule out.

1. Before it serves, the bookie promises again: of every ledger it refuses each session that it may have promised to
   refuse. A claim that has fenced the lost store, and is not recorded yet, has the record's next version as its
   session; this concerns only an open ledger whose last fragment names the bookie. A promise for any other claim is
   covered by the record's own session.
2. Before it serves, the bookie removes each copy that nothing in the store proves to be confirmed: another entry of the
   same session with a last add confirmed that is not below. The others may be orphans. The record may not exclude them
   any more, because the bookie has removed them once. A ledger on one bookie has no orphans, and keeps all.
3. Until it is repaired, it answers "unknown" about each entry that it lacks, of every ledger that existed when the copy
   was found. About later ledgers it answers as any bookie does.
4. It is repaired once the auditor has copied to it, for each ledger that names it, all entries of closed fragments that
   it lacks. An open fragment that names it, and whose session it refuses, is closed before by a claim: it may have had
   entries that the lost store was the last one to acknowledge.
5. The metadata names the copy before anything of the store changes. The store gets a new age only after 1 and 2 are
   durable: after a crash the next start begins again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gnomon.bookie.entry import decode_entry, session_of
from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import NO_ENTRY, BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import LedgerRecord
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.removal import ENTRY_KEY


class OlderCopy(NamedTuple):
    """An older copy that serves, and is not repaired yet."""

    why: str
    last_ledger: LedgerId
    """Of ledgers up to this one entries may be lost."""


def promise_again(record: LedgerRecord | None, version: int, bookie: BookieId) -> SessionId:
    """The lowest session of a ledger that the bookie may accept (invariant 1).

    Args:
        record: None for one that cannot be read.
        version: of the record.
    """
    if record is None:
        return SessionId(version + 1)
    if record.sealed or bookie not in record.fragments[-1].bookies:
        return SessionId(record.session)
    return SessionId(version + 1)


def has_orphans(record: LedgerRecord | None) -> bool:
    """Whether copies of the ledger that nothing proves to be confirmed may be orphans (invariant 2)."""
    return record is None or record.quorum.ensemble_size > 1


def remove_unproved(
    transaction: Any, entries: Any, ledger: LedgerId, end: EntryId, proved: dict[SessionId, EntryId]
) -> tuple[int, EntryId | None]:
    """Removes the copies that nothing proves to be confirmed, from the highest entry down (invariant 2).

    Args:
        end: the copies from here on were examined before.
        proved: by session, the last entry that an examined copy proves; is updated.

    Returns:
        The number of copies removed, and the `end` for the next call; None if no copy is left to examine.
    """
    unproved: list[bytes] = []
    seen, next_end = 0, None
    with transaction.cursor(db=entries) as cursor:
        found = cursor.prev() if cursor.set_range(ENTRY_KEY.pack(ledger, end)) else cursor.last()
        while found:
            key = bytes(cursor.key())
            at_ledger, entry = ENTRY_KEY.unpack(key)
            if at_ledger != ledger:
                break
            if seen == removal.CHUNK_ENTRIES:
                next_end = EntryId(entry + 1)
                break
            seen += 1
            session = session_of(cursor.value())
            if entry > proved.get(session, NO_ENTRY):
                unproved.append(key)
                proved[session] = max(proved.get(session, NO_ENTRY), _confirmed_by(ledger, entry, cursor.value()))
            found = cursor.prev()
    for key in unproved:
        transaction.delete(key, db=entries)
    return len(unproved), next_end


def _confirmed_by(ledger: LedgerId, entry: EntryId, value: memoryview) -> EntryId:
    """The last add confirmed that a copy carries; a damaged copy proves nothing."""
    try:
        return decode_entry(ledger, entry, memoryview(value)).last_add_confirmed
    except LedgerError:
        return NO_ENTRY
