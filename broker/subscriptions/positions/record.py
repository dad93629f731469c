"""The stored forms of a subscription's position: its record in the metadata, and the entries of its segment. Pure.

1. The record is the same for both kinds of store: `{name, segment_id, last_commit_dlsn, offset}`, with `ranges` and
   `resets` if there are any. `offset` is the offset of the log record at the DLSN.
2. If `segment_id` names a segment, the position is in the segment's last entry `{commit_dlsn, offset}`, or in the
   record if the segment has no entry. The position in the record is never ahead of the segment's.
3. `resets` counts explicit resets: a process that knows another count does not know the last reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from gnomon.broker.subscriptions.positions.store import Position, Ranges
from gnomon.log.dlsn import CommitPoint, Dlsn
from gnomon.log.entry import Offset

RECORDS_PER_TURN = 1000
"""A loop over all records yields to other tasks each time it has handled this many: some 5 ms."""

_NAME = "name"
_SEGMENT_ID = "segment_id"
_LAST_COMMIT_DLSN = "last_commit_dlsn"
_COMMIT_DLSN = "commit_dlsn"
_OFFSET = "offset"
_RANGES = "ranges"
_RESETS = "resets"


class SubscriberRecord(NamedTuple):
    """One subscription's record."""

    name: str
    position: Position
    segment_id: int | None = None
    """The number of the subscription's segment; None without one."""
    resets: int = 0

    def encode(self) -> bytes:
        """The value of the metadata key."""
        fields: dict[str, Any] = {
            _NAME: self.name,
            _SEGMENT_ID: self.segment_id,
            _LAST_COMMIT_DLSN: self.position.point[:3],
            _OFFSET: self.position.point.offset,
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
        fields = _unpacked(value, _NAME, _SEGMENT_ID, _LAST_COMMIT_DLSN, _OFFSET)
        if not isinstance(fields[_NAME], str) or type(fields.get(_RESETS, 0)) is not int:
            raise ValueError(f"a subscription's name is a text and its resets are a number, not so in {fields!r}")
        if fields[_SEGMENT_ID] is not None and type(fields[_SEGMENT_ID]) is not int:
            raise ValueError(f"a segment has a number, not {fields[_SEGMENT_ID]!r}")
        position = Position(_point(fields, _LAST_COMMIT_DLSN), _ranges(fields))
        return cls(fields[_NAME], position, fields[_SEGMENT_ID], fields.get(_RESETS, 0))


def encode_commit(position: Position) -> bytes:
    """Encodes a position as an entry of a segment."""
    return _packed({_COMMIT_DLSN: position.point[:3], _OFFSET: position.point.offset}, position.ranges)


def decode_commit(payload: bytes) -> Position:
    """Undoes `encode_commit`.

    Raises:
        ValueError: the payload is no such entry.
    """
    fields = _unpacked(payload, _COMMIT_DLSN, _OFFSET)
    return Position(_point(fields, _COMMIT_DLSN), _ranges(fields))


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


def _point(fields: dict[str, Any], name: str) -> CommitPoint:
    offset = fields[_OFFSET]
    if type(offset) is not int or offset < 0:
        raise ValueError(f"an offset is a number from 0 on, not {offset!r}")
    return CommitPoint.of(Dlsn.decode(fields[name]), offset)


def _ranges(fields: dict[str, Any]) -> Ranges:
    offsets: Sequence[Offset] = fields.get(_RANGES, ())
    if not isinstance(offsets, list | tuple) or not all(type(offset) is int for offset in offsets):
        raise ValueError(f"ranges are numbers, not {offsets!r}")
    return tuple(zip(offsets[::2], offsets[1::2], strict=True))
