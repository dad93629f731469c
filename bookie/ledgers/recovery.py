"""Finds the end of a ledger whose previous writer may still be running. Pure.

E is the number of bookies of a fragment. An entry is sent to Qw of them and acknowledged after Qa have stored it.

1. No entry is read before (E - Qa) + 1 bookies of the last fragment have durably promised the new session (are fenced).
   From then on no older session gets an entry acknowledged.
2. Reading starts at the last entry that is certainly acknowledged: the highest last add confirmed of the fenced
   bookies, or the last entry before the last fragment if that is higher.
3. Only fenced bookies are asked: another bookie could accept the entry from the old writer after a negative answer.
4. An entry with one copy is recovered. The end is before the first entry with (Qw - Qa) + 1 explicit negative answers.
   If neither can be established for an entry, the recovery fails before any entry is written.
5. The tail (the entries recovered after the last add confirmed) is made durable on Qa bookies before the claim is
   recorded; each entry keeps the session that wrote it. So of two simultaneous recoveries at most one is recorded, and
   its claim makes all copies of later entries orphans, which do not count.
"""

from __future__ import annotations

from typing import NamedTuple

from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import NotEnoughBookies
from gnomon.bookie.ids import NO_ENTRY, EntryId, SessionId
from gnomon.bookie.ledgers.reader import EntryRead, ReadVerdict
from gnomon.bookie.record import LedgerRecord


class TailEntry(NamedTuple):
    """An entry after the last add confirmed: its stored value, and the bookie (by index) it was read from."""

    entry: EntryId
    value: bytes
    holder: int


class Recovery:
    """One recovery: fence all of `ensemble`, report the answers, follow `next_read` until it is None, then write `tail`
    to its write sets until each entry has `Quorum.ack_quorum` copies."""

    def __init__(self, record: LedgerRecord) -> None:
        last = record.fragments[-1]
        self._record = record
        self._fenced: dict[int, SessionId] = {}
        self._read: EntryRead | None = None
        self._asked = -1
        self.ensemble = last.bookies
        self._first = max(record.start_entry, last.first_entry)
        self.confirmed = EntryId(self._first - 1)
        """The last entry that was certainly acknowledged."""
        self.length_bytes = record.length_bytes
        """Payload bytes of the ledger up to its last entry."""
        self.tail: list[TailEntry] = []
        """The entries after `confirmed`."""

    @property
    def last_entry(self) -> EntryId:
        """The last entry of the ledger, once `next_read` is None."""
        return EntryId(self.confirmed + len(self.tail))

    @property
    def without_orphans(self) -> bool:
        """Whether every bookie of the ensemble has removed the orphans that the record's fragments exclude."""
        session = self._record.fragments[-1].session
        return len(self._fenced) == len(self.ensemble) and all(bound >= session for bound in self._fenced.values())

    def fenced(self, bookie: int, last_add_confirmed: EntryId, bound: SessionId) -> None:
        """A bookie has durably promised the new session; `bound` is the last session whose bounds it has applied."""
        assert self._read is None, "a fence was reported after reading began"
        self._fenced[bookie] = bound
        self.confirmed = max(self.confirmed, last_add_confirmed)

    @property
    def copied_entries(self) -> range:
        """The entries of the last fragment that should have more than one copy, once `next_read` is None.

        The earlier writer may have died while adds were on their way to a bookie, or while it wrote without it, or
        after it used the bookie again: then the bookie lacks entries, at the end of the fragment or within it.
        """
        copied = self._record.quorum.write_quorum > 1
        return range(self._first, self.last_entry + 1 if copied else self._first)

    @property
    def enough_fenced(self) -> bool:
        """Whether reading may begin."""
        return len(self._fenced) >= self._record.quorum.fences_needed

    def next_read(self) -> tuple[int, EntryId, SessionId] | None:
        """The bookie to ask, the entry, and the lowest session that counts; None when the end is found.

        Raises:
            NotEnoughBookies: too few bookies were fenced or answered to be certain.
        """
        record = self._record
        if self._read is None:
            if not self.enough_fenced:
                raise NotEnoughBookies(
                    f"only {len(self._fenced)} of {record.quorum.fences_needed} bookies needed of"
                    f" {', '.join(self.ensemble)} could be fenced: bring them back and open again"
                )
            # The last confirmed entry is read as well, for its length field, unless it was shrunk away.
            known = self.confirmed >= record.start_entry and self.confirmed > NO_ENTRY
            self._ask_for(self.confirmed if known else EntryId(self.confirmed + 1))
        assert self._read is not None
        entry = self._read.entry
        bookie = self._read.next_bookie()
        if bookie is not None:
            self._asked = bookie
            return bookie, entry, record.fragment_of(entry).session
        if entry == self.confirmed:
            # The entry is acknowledged, but damaged or out of reach: the end is after it, only the length is less
            # certain.
            self._ask_for(EntryId(entry + 1))
            return self.next_read()
        if self._read.verdict is ReadVerdict.UNREACHABLE:
            raise NotEnoughBookies(f"whether entry {entry} exists is not certain: too few of its bookies answered")
        return None

    def _ask_for(self, entry: EntryId) -> None:
        self._read = EntryRead(self._record.quorum, entry, self._fenced)

    def found(self, stored: StoredEntry) -> None:
        """The bookie asked last has the entry."""
        assert self._read is not None, "an answer came before the question"
        entry = self._read.entry
        self.length_bytes = stored.length_bytes
        if entry > self.confirmed:
            self.tail.append(TailEntry(entry, bytes(stored.value), self._asked))
        self._ask_for(EntryId(entry + 1))

    def absent(self) -> None:
        """The bookie asked last does not have the entry, or only an orphan of it."""
        assert self._read is not None, "an answer came before the question"
        self._read.negative()
