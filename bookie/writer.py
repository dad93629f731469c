"""Which entries of a ledger are confirmed, as its bookies answer. Pure: one writer in one session.

1. Entries are confirmed in order, each when Qa bookies of its write set have it durably; a confirmed entry stays so.
2. Entry ids are given out in order from the one after the last recovered entry on.
3. A bookie that failed gets nothing more (`lost`) until it is back (`regained`) or replaced; what it has answered
   counts.
4. While the ensemble changes nothing is confirmed: the new fragment begins behind the last entry confirmed, and what
   replaced bookies had of the entries behind it counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gnomon.bookie.ids import EntryId
from gnomon.bookie.record import Quorum


class LedgerWriter:
    """The entries of one writer in one session.

    The driver takes ids from `append`, sends to `targets`, and reports each answer to `stored` or `lost`.
    """

    __slots__ = (
        "_changing",
        "_complete",
        "_lost",
        "_quorum",
        "_single",
        "_stored",
        "_targets",
        "confirmed",
        "next_entry",
    )

    def __init__(self, quorum: Quorum, confirmed: EntryId) -> None:
        """Goes on after `confirmed`, the last entry that is known to be complete."""
        self._quorum = quorum
        self._single = quorum.ensemble_size == 1
        self._stored: dict[EntryId, int] = {}
        self._complete: dict[EntryId, None] = {}  # with many idle ledgers: an empty set takes 216 bytes, a dict 64
        self._lost: dict[int, None] = {}
        self._changing = False
        self.confirmed = confirmed
        self.next_entry = EntryId(confirmed + 1)
        self._aim()

    def _aim(self) -> None:
        self._targets = _targets(self._quorum, tuple(self._lost))

    def append(self) -> EntryId:
        """The id of the next entry."""
        entry = self.next_entry
        self.next_entry = EntryId(entry + 1)
        return entry

    def targets(self, entry: EntryId) -> tuple[int, ...]:
        """Indexes of the bookies to send `entry` to: its write set without those that are lost."""
        return self._targets[entry % len(self._targets)]

    def stored(self, bookie: int, entry: EntryId) -> EntryId:
        """A bookie has `entry` durably; returns the last add confirmed, which may have moved over several entries."""
        if entry <= self.confirmed:
            return self.confirmed
        if self._changing or not self._single:
            answered = self._stored[entry] = self._stored.get(entry, 0) | 1 << bookie
            if self._changing or answered.bit_count() < self._quorum.ack_quorum:
                return self.confirmed
        if entry != self.confirmed + 1:
            self._complete[entry] = None
            return self.confirmed
        self._confirm(entry)
        if self._complete:
            self._confirm_complete()
        return self.confirmed

    def _confirm(self, entry: EntryId) -> None:
        self.confirmed = entry
        self._stored.pop(entry, None)

    def _confirm_complete(self) -> None:
        while (after := EntryId(self.confirmed + 1)) in self._complete:
            del self._complete[after]
            self._confirm(after)

    # --- bookies that fail ---

    @property
    def lost_bookies(self) -> tuple[int, ...]:
        """Indexes of the bookies that get nothing at the moment."""
        return tuple(self._lost)

    @property
    def writable(self) -> bool:
        """Whether every entry still has Qa bookies to go to."""
        return min(map(len, self._targets)) >= self._quorum.ack_quorum

    def lost(self, bookie: int) -> bool:
        """A bookie failed: it gets nothing more. False when that was known."""
        if bookie in self._lost:
            return False
        self._lost[bookie] = None
        self._aim()
        return True

    def regained(self, bookie: int) -> range:
        """A lost bookie is back in its place; returns the entries to send to it, of those in its write sets."""
        self._lost.pop(bookie, None)
        self._aim()
        return range(self.confirmed + 1, self.next_entry)

    # --- ensemble change ---

    def begin_change(self) -> EntryId:
        """Where the fragment of the new ensemble begins; nothing is confirmed until `end_change`."""
        assert not self._changing, "two ensemble changes at a time"
        self._changing = True
        return EntryId(self.confirmed + 1)

    def end_change(self, replaced: Iterable[int]) -> tuple[EntryId, range]:
        """The change was recorded, or given up with nothing replaced.

        Returns:
            The last add confirmed, and the entries to send to those replaced, where in their write sets.
        """
        assert self._changing, "an ensemble change ended that was not begun"
        self._changing = False
        mask = 0
        for bookie in replaced:
            mask |= 1 << bookie
            self._lost.pop(bookie, None)
        self._aim()
        pending = range(self.confirmed + 1, self.next_entry)
        self._complete.clear()
        for entry in map(EntryId, pending):
            answered = self._stored.get(entry, 0) & ~mask
            self._stored[entry] = answered
            if answered.bit_count() >= self._quorum.ack_quorum:
                self._complete[entry] = None
        self._confirm_complete()
        return self.confirmed, pending


@lru_cache
def _targets(quorum: Quorum, lost: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Indexes of the bookies that the first entries go to; then it begins again. One for all ledgers of a kind."""
    sets = [quorum.write_set(EntryId(first)) for first in range(quorum.ensemble_size)]
    return tuple(tuple(index for index in write_set if index not in lost) for write_set in sets)
