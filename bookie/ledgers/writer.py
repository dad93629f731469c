"""Decides which entries of a ledger are confirmed, from the answers of its bookies. Pure.

A `LedgerWriter` is one writer in one session, which is one claim of the ledger.

1. Entries are confirmed in order, each after an ack quorum (Qa bookies of its write set) has stored it durably. A
   confirmed entry stays confirmed.
2. Entry ids are assigned in order, starting after the last recovered entry.
3. A failed bookie (`lost`) gets no entries until it is back (`regained`) or replaced. Its earlier answers count unless
   it is replaced.
4. During a change of ensemble nothing is confirmed: the new fragment begins after the last entry confirmed, and copies
   of later entries at replaced bookies no longer count.
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
        """Continues after `confirmed`, the last entry that is known to be complete."""
        self._quorum = quorum
        self._single = quorum.ensemble_size == 1
        self._stored: dict[EntryId, int] = {}
        self._complete: dict[
            EntryId, None
        ] = {}  # a dict takes 64 bytes, an empty set 216, which matters with many idle ledgers
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
        """Indexes of the bookies to send `entry` to: its write set without lost bookies."""
        return self._targets[entry % len(self._targets)]

    def stored(self, bookie: int, entry: EntryId) -> EntryId:
        """A bookie has `entry` durably; returns the last add confirmed, which may have advanced by several entries."""
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
        """Indexes of the bookies that get no entries at the moment."""
        return tuple(self._lost)

    @property
    def writable(self) -> bool:
        """Whether every entry still has Qa bookies to be sent to."""
        return min(map(len, self._targets)) >= self._quorum.ack_quorum

    def lost(self, bookie: int) -> bool:
        """A bookie failed and gets no more entries. False if that was known."""
        if bookie in self._lost:
            return False
        self._lost[bookie] = None
        self._aim()
        return True

    def regained(self, bookie: int) -> range:
        """A lost bookie is back at its index; returns the entries to send to it, if they are in its write sets."""
        self._lost.pop(bookie, None)
        self._aim()
        return range(self.confirmed + 1, self.next_entry)

    def ended(self) -> None:
        """No further entry is sent: no bookie counts as lost any more."""
        self._lost.clear()
        self._aim()

    # --- ensemble change ---

    def begin_change(self) -> EntryId:
        """The first entry of the new ensemble's fragment; nothing is confirmed until `end_change`."""
        assert not self._changing, "two ensemble changes at a time"
        self._changing = True
        return EntryId(self.confirmed + 1)

    def end_change(self, replaced: Iterable[int]) -> tuple[EntryId, range]:
        """The change was recorded, or abandoned with nothing replaced.

        Returns:
            The last add confirmed, and the entries to send to the replacements, if they are in their write sets.
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
    """Indexes of the bookies for the first entries; then the pattern repeats. Cached for all ledgers of a kind."""
    sets = [quorum.write_set(EntryId(first)) for first in range(quorum.ensemble_size)]
    return tuple(tuple(index for index in write_set if index not in lost) for write_set in sets)
