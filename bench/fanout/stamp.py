"""Produce requests whose first record contains its send time, on the clock that all processes share."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

import crc32c

from bench.frame import produce_frame, record_batch, varint

BATCH_HEADER_BYTES = 61
_RECORD_FIELDS_BYTES = 4
"""Attributes, time and offset delta, no key: a byte each in the first record."""
_STAMP = struct.Struct("<d")
_CRC_AT, _COVERED_AT = 17, 21


def value_at(value_bytes: int) -> int:
    """The position of the value of a batch's first record, from the batch's beginning."""
    body = _RECORD_FIELDS_BYTES + len(varint(value_bytes)) + value_bytes + 1
    return BATCH_HEADER_BYTES + len(varint(body)) + _RECORD_FIELDS_BYTES + len(varint(value_bytes))


def sent_at(value: bytes | memoryview, at: int = 0) -> float:
    """The send time of a value, monotonic seconds."""
    seconds: float = _STAMP.unpack_from(value, at)[0]
    return seconds


class StampedFrame:
    """One request, sent repeatedly with its current time."""

    def __init__(self, topic: str, partition: int, records: int, value_bytes: int) -> None:
        self._frame = bytearray(produce_frame(topic, record_batch(records, value_bytes)))
        self._batch_at = len(self._frame) - len(record_batch(records, value_bytes))
        self._value_at = self._batch_at + value_at(value_bytes)
        struct.pack_into(">i", self._frame, self._batch_at - 8, partition)

    def stamped(self) -> bytes:
        """The request with the current time."""
        frame, batch_at = self._frame, self._batch_at
        _STAMP.pack_into(frame, self._value_at, time.monotonic())
        covered = memoryview(frame)[batch_at + _COVERED_AT :]
        struct.pack_into(">I", frame, batch_at + _CRC_AT, crc32c.crc32c(covered))
        return bytes(frame)


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of ordered figures; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
