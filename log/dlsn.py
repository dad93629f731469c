"""A DLSN is a record's place in storage: segment, entry of the segment's ledger, slot in the entry. Pure.

1. DLSNs are ordered as the log is: a later record has a larger DLSN.
2. A DLSN means the same record on a source topic and on its shadows, since they read the same ledgers.
3. A subscription's position is the DLSN of the first record that it has not acknowledged, even if that record is not
   written yet.
4. A commit point is a position with both the DLSN and the offset, so neither has to be looked up in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple


class Dlsn(NamedTuple):
    """One record of a partition."""

    segment: int
    """The base offset of the segment, which is in its ledger's name."""
    entry: int
    """The entry of that ledger."""
    slot: int
    """The record's place in the entry, from 0: its offset less the entry's base offset; a place may have no record."""

    def encode(self) -> list[int]:
        """The form for msgpack."""
        return list(self)

    @classmethod
    def decode(cls, stored: Sequence[int]) -> Dlsn:
        """Undoes `encode`.

        Raises:
            ValueError: it is not a DLSN.
        """
        if len(stored) != len(cls._fields) or not all(type(part) is int and part >= 0 for part in stored):
            raise ValueError(f"a DLSN is three numbers from 0 on, not {stored!r}")
        return cls(*stored)


class CommitPoint(NamedTuple):
    """The first record that a subscription has not acknowledged: its DLSN and its offset; in the order of the log."""

    segment: int = 0
    entry: int = 0
    slot: int = 0
    offset: int = 0

    @classmethod
    def of(cls, dlsn: Dlsn, offset: int) -> CommitPoint:
        """The record of a DLSN, which has this offset."""
        return cls(*dlsn, offset)

    @property
    def dlsn(self) -> Dlsn:
        """Segment, entry and slot."""
        return Dlsn(self.segment, self.entry, self.slot)


AT_BEGINNING: Final = CommitPoint()
"""The commit point of a subscription that was never advanced."""
BEGINNING: Final = Dlsn(0, 0, 0)
"""Before every record: the position of a subscription that was never advanced."""
