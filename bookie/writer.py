"""Which bookies an append goes to, and when it is acknowledged. Pure.

1. Entry ids are given out in order, without a gap.
2. Entry i goes to the Qw bookies of the ensemble from i mod E on.
3. An entry is complete once Qa different bookies have stored it; it is confirmed once it and all before it are
   complete, so confirmations come in entry order.
4. The last add confirmed that rides on an add is the one known when the add is sent: it never claims too much.
5. An entry that more than Qw - Qa of its bookies failed to store can not be confirmed any more: the writer is broken.
"""

from __future__ import annotations

from gnomon.bookie.ids import EntryId
from gnomon.bookie.record import Quorum


class LedgerWriter:
    """The appending end of a ledger in one session.

    The driver takes ids from `append`, sends to `write_set`, and reports each answer to `stored` or `failed`.
    """

    __slots__ = ("_complete", "_quorum", "_refused", "_single", "_stored", "_write_sets", "confirmed", "next_entry")

    def __init__(self, quorum: Quorum, confirmed: EntryId) -> None:
        """Goes on after `confirmed`, the last entry that is known to be complete."""
        self._quorum = quorum
        self._single = quorum.ack_quorum == 1
        self._write_sets = [quorum.write_set(EntryId(first)) for first in range(quorum.ensemble_size)]
        self._stored: dict[EntryId, int] = {}
        self._refused: dict[EntryId, int] = {}
        self._complete: set[EntryId] = set()
        self.confirmed = confirmed
        self.next_entry = EntryId(confirmed + 1)

    def append(self) -> EntryId:
        """The id of the next entry."""
        entry = self.next_entry
        self.next_entry = EntryId(entry + 1)
        return entry

    def write_set(self, entry: EntryId) -> tuple[int, ...]:
        """Indexes of the bookies to send `entry` to."""
        return self._write_sets[entry % len(self._write_sets)]

    def stored(self, bookie: int, entry: EntryId) -> EntryId:
        """A bookie has `entry` durably; returns the last add confirmed, which may have moved over several entries."""
        if entry <= self.confirmed:
            return self.confirmed
        if not self._single:
            answered = self._stored[entry] = self._stored.get(entry, 0) | 1 << bookie
            if answered.bit_count() < self._quorum.ack_quorum:
                return self.confirmed
        if entry != self.confirmed + 1:
            self._complete.add(entry)
            return self.confirmed
        self._confirm(entry)
        while self._complete and (after := EntryId(self.confirmed + 1)) in self._complete:
            self._complete.discard(after)
            self._confirm(after)
        return self.confirmed

    def _confirm(self, entry: EntryId) -> None:
        self.confirmed = entry
        if self._stored or self._refused:
            self._stored.pop(entry, None)
            self._refused.pop(entry, None)

    def failed(self, bookie: int, entry: EntryId) -> bool:
        """A bookie could not store `entry`; True when the entry can not be confirmed any more."""
        if entry <= self.confirmed or entry in self._complete:
            return False
        refused = self._refused[entry] = self._refused.get(entry, 0) | 1 << bookie
        return refused.bit_count() >= self._quorum.negatives_needed
