"""The sizes of the parts of an open partition's log, for retention, quotas and snapshots.

The bytes of a part of a segment are estimated by its records: half of the records count as half of the bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.readable import Readable
from gnomon.log.entry import Offset


class Stretch(NamedTuple):
    """Records of one segment."""

    first: Offset
    end: Offset
    size_bytes: int


def stretches(partition: Readable, last: Stretch) -> list[Stretch]:
    """The segments of an open partition, the oldest first; `last` is the segment being written."""
    found = []
    for segment in partition.segments[:-1]:
        assert segment.next_offset is not None, "all segments but the last are sealed"
        found.append(Stretch(segment.base_offset, segment.next_offset, segment.size_bytes))
    return [*found, last]


def last_stretch(partition: Readable, log: PartitionLog) -> Stretch:
    """The segment being written of a partition with a log of its own."""
    return Stretch(partition.segments[-1].base_offset, log.next_offset, log.segment_bytes)


def bytes_from(found: list[Stretch], offset: Offset) -> int:
    """The bytes of the records from `offset` on."""
    size_bytes = 0
    for first, end, stretch_bytes in found:
        if offset <= first:
            size_bytes += stretch_bytes
        elif offset < end:
            size_bytes += stretch_bytes * (end - offset) // (end - first)
    return size_bytes


def offset_for_bytes(found: list[Stretch], bytes_max: int) -> Offset:
    """The first offset from which on there are at most `bytes_max` bytes."""
    left = bytes_max
    for first, end, stretch_bytes in reversed(found):
        if stretch_bytes > left:
            return Offset(end - left * (end - first) // stretch_bytes)
        left -= stretch_bytes
    return found[0].first
