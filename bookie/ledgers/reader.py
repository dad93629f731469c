"""Decides which copy of an entry to request next, and what the answers prove. Pure.

An entry is sent to Qw bookies, its write set, and acknowledged after Qa of them have stored it.

1. Copies are requested in the order of the write set, each once.
2. An error or a time-out never counts as a negative answer.
3. The entry is absent only after (Qw - Qa) + 1 explicit negative answers: then fewer than Qa bookies can have it, so it
   was never acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from gnomon.bookie.ids import EntryId
from gnomon.bookie.record import Quorum


class ReadVerdict(Enum):
    """The result for an entry when no more copies are to be requested."""

    ABSENT = auto()
    UNREACHABLE = auto()


class EntryRead:
    """The search for one entry among its bookies."""

    __slots__ = ("_left", "_negatives_left", "entry")

    def __init__(self, quorum: Quorum, entry: EntryId, usable: Iterable[int] | None = None) -> None:
        """Searches the write set of `entry`, or the part of it in `usable`."""
        write_set = quorum.write_set(entry)
        allowed = write_set if usable is None else tuple(usable)
        self.entry = entry
        self._left = [bookie for bookie in write_set if bookie in allowed]
        self._negatives_left = quorum.negatives_needed

    def next_bookie(self) -> int | None:
        """The bookie to ask, None when the `verdict` is final."""
        return self._left.pop(0) if self._left and self._negatives_left > 0 else None

    def negative(self) -> None:
        """The bookie asked last explicitly does not have the entry."""
        self._negatives_left -= 1

    @property
    def verdict(self) -> ReadVerdict:
        """The conclusion when no bookie returned the entry."""
        return ReadVerdict.ABSENT if self._negatives_left <= 0 else ReadVerdict.UNREACHABLE
