"""Which copy of an entry to ask for next, and what the answers prove. Pure.

1. Copies are asked for in write-set order, each once.
2. An error or a time-out is never a negative answer.
3. The entry is absent only on (Qw - Qa) + 1 explicit negative answers: with that many, fewer than Qa bookies can have
   it, so it was never acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from gnomon.bookie.ids import EntryId
from gnomon.bookie.record import Quorum


class Verdict(Enum):
    """What is known about an entry when no more copies are to be asked for."""

    ABSENT = auto()
    UNREACHABLE = auto()


class EntryRead:
    """The search for one entry among its bookies."""

    __slots__ = ("_left", "_negatives_left", "entry")

    def __init__(self, quorum: Quorum, entry: EntryId, usable: Iterable[int] | None = None) -> None:
        """Searches the write set of `entry`, or what of it is in `usable`."""
        write_set = quorum.write_set(entry)
        allowed = write_set if usable is None else tuple(usable)
        self.entry = entry
        self._left = [bookie for bookie in write_set if bookie in allowed]
        self._negatives_left = quorum.negatives_needed

    def next_bookie(self) -> int | None:
        """The bookie to ask, None when the `verdict` stands."""
        return self._left.pop(0) if self._left and self._negatives_left > 0 else None

    def negative(self) -> None:
        """The bookie asked last said explicitly that it does not have the entry."""
        self._negatives_left -= 1

    @property
    def verdict(self) -> Verdict:
        """What follows from the answers when nobody had the entry."""
        return Verdict.ABSENT if self._negatives_left <= 0 else Verdict.UNREACHABLE
