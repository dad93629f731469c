"""Finding the end of a ledger that another writer may still believe to be its own. Pure.

1. Nothing is trusted before (E - Qa) + 1 bookies of the last fragment have durably promised the new session: from then
   on no older session gets an entry acknowledged.
2. The highest LAC among the fenced bookies is where reading starts: everything up to it is acknowledged.
3. Only fenced bookies are asked: a negative answer from another one could be made untrue by the old writer.
4. An entry found in one copy is recovered; it is the end only on (Qw - Qa) + 1 explicit negative answers. Anything less
   certain fails the recovery, and nothing has been changed.
5. Recovery writes nothing. The claim is recorded first (with its fragment right after the last entry found), then the
   entries after the LAC are written again under the new session, and only then may the new writer add its own: two
   writers that recover at once can not disturb each other, and at most one of them is recorded.
"""

from __future__ import annotations

from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import NotEnoughBookies
from gnomon.bookie.ids import EntryId, Session
from gnomon.bookie.reader import EntryRead, Verdict
from gnomon.bookie.record import LedgerRecord


class Recovery:
    """One recovery: fence all of `ensemble`, report the answers, then follow `next_read` until it is None."""

    def __init__(self, record: LedgerRecord) -> None:
        self._record = record
        self._fenced: list[int] = []
        self._read: EntryRead | None = None
        self.ensemble = record.fragments[-1].bookies
        self.confirmed = EntryId(record.start_entry - 1)
        """Acknowledged for certain: the highest LAC found."""
        self.length_bytes = record.length_bytes
        """Payload bytes of the ledger up to its last entry."""
        self.tail: list[bytes] = []
        """Payloads of the entries after `confirmed`, to be written again under the new session."""

    @property
    def last_entry(self) -> EntryId:
        """The last entry of the ledger, once `next_read` is None."""
        return EntryId(self.confirmed + len(self.tail))

    def fenced(self, bookie: int, last_add_confirmed: EntryId) -> None:
        """A bookie has durably promised the new session."""
        assert self._read is None, "a fence was reported after reading began"
        if bookie not in self._fenced:
            self._fenced.append(bookie)
        self.confirmed = max(self.confirmed, last_add_confirmed)

    def next_read(self) -> tuple[int, EntryId, Session] | None:
        """Which bookie to ask for which entry, and the lowest session that counts; None when the end is found.

        Raises:
            NotEnoughBookies: too few bookies were fenced or answered to be certain.
        """
        record = self._record
        if self._read is None:
            if len(self._fenced) < record.quorum.fences_needed:
                raise NotEnoughBookies(
                    f"only {len(self._fenced)} of {record.quorum.fences_needed} bookies needed of"
                    f" {', '.join(self.ensemble)} could be fenced: bring them back and open again"
                )
            # The last confirmed entry is read as well, for the length it carries; but not where it was shrunk away.
            first = self.confirmed if self.confirmed >= record.start_entry else self.confirmed + 1
            self._read = EntryRead(record.quorum, EntryId(first), self._fenced)
        entry = self._read.entry
        bookie = self._read.next_bookie()
        if bookie is not None:
            return bookie, entry, record.fragment_of(entry).session
        if entry == self.confirmed:
            # Acknowledged, but damaged or out of reach: the end lies behind it, only the length is not known better.
            self._read = EntryRead(record.quorum, EntryId(entry + 1), self._fenced)
            return self.next_read()
        if self._read.verdict is Verdict.UNREACHABLE:
            raise NotEnoughBookies(f"whether entry {entry} exists is not certain: too few of its bookies answered")
        return None

    def found(self, entry: EntryId, stored: StoredEntry) -> None:
        """The bookie asked last has the entry."""
        self.length_bytes = stored.length_bytes
        if entry > self.confirmed:
            self.tail.append(bytes(stored.payload))
        self._read = EntryRead(self._record.quorum, EntryId(entry + 1), self._fenced)

    def absent(self) -> None:
        """The bookie asked last does not have the entry, or only an orphan of it."""
        assert self._read is not None, "an answer came before the question"
        self._read.negative()
