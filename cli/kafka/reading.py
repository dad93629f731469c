"""The bounds of a reading: the records of some partitions that belong to it, and the moment when all were read.

1. No record at or after the end of its partition belongs to the reading.
2. A partition is complete after its last record before the end, or after a notice that its log ends there or later. The
   notice counts because the offsets before the end may be without records.
3. `newest` keeps the order of each partition, whatever the timestamps of its records are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar


class Placed(Protocol):
    """A record in its log, as confluent-kafka's messages are."""

    def partition(self) -> int | None:
        """The partition of the record."""

    def offset(self) -> int | None:
        """The offset of the record."""

    def timestamp(self) -> tuple[int, int]:
        """The kind and the milliseconds of the timestamp."""


R = TypeVar("R", bound=Placed)


class ReadingBounds:
    """The end of each partition."""

    def __init__(self, ends: Mapping[int, int] | None) -> None:
        """Takes the first offset of each partition that does not belong to the reading; None for an endless one."""
        self._ends = ends
        self._left = None if ends is None else set(ends)

    @property
    def endless(self) -> bool:
        """Whether no end was given."""
        return self._ends is None

    @property
    def complete(self) -> bool:
        """Whether every record was read."""
        return self._left is not None and not self._left

    def belongs(self, record: Placed) -> bool:
        """Takes note of a record that was read, and returns whether it belongs to the reading."""
        if self._ends is None or self._left is None:
            return True
        partition, offset = _place(record)
        end = self._ends[partition]
        if offset >= end - 1:
            self._left.discard(partition)
        return offset < end

    def log_ends(self, notice: Placed) -> None:
        """Takes note that a partition has no records from the offset of the notice on."""
        if self._ends is None or self._left is None:
            return
        partition, offset = _place(notice)
        if offset >= self._ends[partition]:
            self._left.discard(partition)


def _place(record: Placed) -> tuple[int, int]:
    partition, offset = record.partition(), record.offset()
    assert partition is not None, "a record without a partition"
    assert offset is not None, "a record without an offset"
    return partition, offset


def newest(records: Iterable[R], count: int) -> list[R]:
    """The `count` records with the latest times, ordered by time.

    Args:
        records: those of each partition in order. The time of a record is the largest timestamp up to it in its
            partition.
    """
    latest: dict[int, int] = {}
    timed = []
    for record in records:
        partition, offset = _place(record)
        latest[partition] = max(latest.get(partition, 0), record.timestamp()[1])
        timed.append((latest[partition], partition, offset, record))
    return [record for _, _, _, record in sorted(timed, key=lambda item: item[:3])[-count:]]
