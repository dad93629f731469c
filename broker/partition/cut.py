"""Where a log was cut although somebody may not have read what went: told to readers that stood before it. Pure.

A position before the cut is that of a reader who has missed something, if the log begins at `offset` or behind it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgpack

from gnomon.broker.partition.entry import Offset

CUTS: Final = "cuts/"
"""Where the metadata keys of all cuts begin; the name of the chain of ledgers follows."""


class Cut(NamedTuple):
    """The last cut of a log: the place up to which it is gone, and the offset there."""

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
            ValueError, TypeError: the value is no cut.
        """
        return cls(*msgpack.unpackb(value))


def cut_key(ledgers_prefix: str) -> str:
    """The metadata key of the last cut of the log whose ledgers have names that begin so."""
    return CUTS + ledgers_prefix
