"""Positions of records as subscriptions know them: segment, entry of its ledger, record of the batch. Pure.

1. DLSNs are ordered as the log is: a later record has a larger one.
2. A DLSN says the same on a source and on its shadows, since they read the same ledgers.
3. As a position, a DLSN names the first record that is not acknowledged, which need not be written yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple


class Dlsn(NamedTuple):
    """One record of a partition."""

    segment: int
    """The base offset of the segment, which its ledger is named after."""
    entry: int
    """The entry of that ledger."""
    slot: int
    """The record's place in the entry's batch, from 0: its offset less the batch's base offset."""

    def encode(self) -> list[int]:
        """What msgpack stores of it."""
        return list(self)

    @classmethod
    def decode(cls, stored: Sequence[int]) -> Dlsn:
        """Undoes `encode`.

        Raises:
            ValueError: it is no DLSN.
        """
        if len(stored) != len(cls._fields) or not all(type(part) is int and part >= 0 for part in stored):
            raise ValueError(f"a DLSN is three numbers from 0 on, not {stored!r}")
        return cls(*stored)


BEGINNING: Final = Dlsn(0, 0, 0)
"""Before every record: where a subscription stands that nobody has advanced."""
