"""The payload of a partition's ledger entry: a fixed header and, for a batch, the record batch byte for byte.

1. Offsets are dense: an entry covers [base_offset, next_offset), and the next entry of the log begins at next_offset.
2. `leader_epoch`, `next_offset` and, inside one segment, `max_timestamp` never fall from one entry to the next, so each
   can be searched by bisection over entries.
3. The producer state after an entry is what replaying entries `replay_from` .. this one of the same ledger gives,
   starting from nothing; a snapshot entry replaces whatever was replayed before it.
4. A snapshot entry covers no offsets.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)

NO_OFFSET = Offset(-1)
NO_TIMESTAMP = -1


class EntryKind(IntEnum):
    """What follows the header."""

    BATCH = 1
    """One record batch, base offset and leader epoch patched."""
    PRODUCERS = 2
    """A snapshot of the producer states (`producers.encode_snapshot`)."""


class EntryHeader(NamedTuple):
    """The fixed header; timestamps in milliseconds since 1970."""

    kind: int
    leader_epoch: LeaderEpoch
    base_offset: Offset
    next_offset: Offset
    max_timestamp: int
    """The largest record timestamp of this segment so far, -1 where there is none."""
    replay_from: int
    """Entry id in the same ledger where replaying the producer states begins."""


_HEADER = struct.Struct(">Biqqqq")
HEADER_BYTES = _HEADER.size

pack_header = _HEADER.pack
"""`pack_header(kind, leader_epoch, base_offset, next_offset, max_timestamp, replay_from) -> bytes`."""


unpack_reach = struct.Struct(">B12xq").unpack_from
"""`unpack_reach(payload) -> (kind, next_offset)`: what a sequential reader needs of the header."""


def unpack_header(payload: memoryview) -> EntryHeader:
    """The header of an entry's payload."""
    return EntryHeader._make(_HEADER.unpack_from(payload))
