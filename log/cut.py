"""The latest cut of a log: the deletion of all records below an offset, read by all subscriptions or not. Pure.

The transaction that deletes the records also writes the cut. A subscription has missed records if its position is below
the cut's `offset`, and this broker knows that the log begins at `offset` or later.
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
