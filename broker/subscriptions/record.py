"""What is stored of a subscription: its record in the metadata, and the entries of its segment. Pure.

1. The record is the same for both kinds of store: `{name, segment_id, last_commit_dlsn}`, with `ranges` and `resets`
   where there are any.
2. Where `segment_id` names a segment, the position is that of its last entry `{commit_dlsn}`; the record's where it has
   none, which is never ahead of it.
3. `resets` counts explicit resets: who knows another count has not heard of the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.store import Position, Ranges

RECORDS_PER_TURN = 1000
"""Who looks at all records leaves others their turn after so many: some 5 ms."""

_NAME = "name"
_SEGMENT_ID = "segment_id"
_LAST_COMMIT_DLSN = "last_commit_dlsn"
_COMMIT_DLSN = "commit_dlsn"
_RANGES = "ranges"
_RESETS = "resets"


class SubscriberRecord(NamedTuple):
    """One subscription's record."""

    name: str
    position: Position
    segment_id: int | None = None
    """The number of its segment, None where it has none."""
    resets: int = 0

    def encode(self) -> bytes:
        """The value of the metadata key."""
        fields: dict[str, Any] = {
            _NAME: self.name,
            _SEGMENT_ID: self.segment_id,
            _LAST_COMMIT_DLSN: self.position.dlsn,
        }
        if self.resets:
            fields[_RESETS] = self.resets
        return _packed(fields, self.position.ranges)

    @classmethod
    def decode(cls, value: bytes) -> SubscriberRecord:
        """Undoes `encode`.

        Raises:
            ValueError: the value is no record.
        """
        fields = _unpacked(value, _NAME, _SEGMENT_ID, _LAST_COMMIT_DLSN)
        if not isinstance(fields[_NAME], str) or type(fields.get(_RESETS, 0)) is not int:
            raise ValueError(f"a subscription's name is a text and its resets are a number, not so in {fields!r}")
        if fields[_SEGMENT_ID] is not None and type(fields[_SEGMENT_ID]) is not int:
            raise ValueError(f"a segment has a number, not {fields[_SEGMENT_ID]!r}")
        position = Position(Dlsn.decode(fields[_LAST_COMMIT_DLSN]), _ranges(fields))
        return cls(fields[_NAME], position, fields[_SEGMENT_ID], fields.get(_RESETS, 0))


def encode_commit(position: Position) -> bytes:
    """An entry of a segment."""
    return _packed({_COMMIT_DLSN: position.dlsn}, position.ranges)


def decode_commit(payload: bytes) -> Position:
    """Undoes `encode_commit`.

    Raises:
        ValueError: it is no such entry.
    """
    fields = _unpacked(payload, _COMMIT_DLSN)
    return Position(Dlsn.decode(fields[_COMMIT_DLSN]), _ranges(fields))


def _packed(fields: dict[str, Any], ranges: Ranges) -> bytes:
    if ranges:
        fields[_RANGES] = [offset for run in ranges for offset in run]
    packed: bytes = msgpack.packb(fields)
    return packed


def _unpacked(stored: bytes, *needed: str) -> dict[str, Any]:
    fields = msgpack.unpackb(stored)
    if not isinstance(fields, dict) or not all(name in fields for name in needed):
        raise ValueError(f"a subscription's position has the fields {', '.join(needed)}, not {fields!r}")
    return fields


def _ranges(fields: dict[str, Any]) -> Ranges:
    offsets: Sequence[Offset] = fields.get(_RANGES, ())
    if not isinstance(offsets, list | tuple) or not all(type(offset) is int for offset in offsets):
        raise ValueError(f"ranges are numbers, not {offsets!r}")
    return tuple(zip(offsets[::2], offsets[1::2], strict=True))
