"""The last cut of a log: a deletion of records that some subscription may not have read. Pure.

A reader whose position is before the cut has missed records, if the log begins at `offset` or after it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgpack

from gnomon.log.entry import Offset

CUTS: Final = "cuts/"
"""Prefix of the metadata keys of all cuts; the name of the chain of ledgers follows."""


class Cut(NamedTuple):
    """The last cut of a log: the place up to which it was deleted, and the offset there."""

    segment: int
    entry: int
    slot: int
    offset: Offset

    def encode(self) -> bytes:
        """The value of its metadata key."""
        packed: bytes = msgpack.packb(list(self))
        return packed

    @classmethod
    def decode(cls, value: bytes) -> Cut:
        """Undoes `encode`.

        Raises:
            ValueError, TypeError: the value is not a cut.
        """
        return cls(*msgpack.unpackb(value))


def cut_key(ledgers_prefix: str) -> str:
    """The metadata key of the last cut of the log whose ledgers' names have this prefix."""
    return CUTS + ledgers_prefix
