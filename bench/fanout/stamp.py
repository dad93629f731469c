"""Produce requests whose first record carries the time at which it is sent, on the clock that all processes share."""

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
    """Where the value of a batch's first record begins, from the batch's beginning."""
    body = _RECORD_FIELDS_BYTES + len(varint(value_bytes)) + value_bytes + 1
    return BATCH_HEADER_BYTES + len(varint(body)) + _RECORD_FIELDS_BYTES + len(varint(value_bytes))


def sent_at(value: bytes | memoryview, at: int = 0) -> float:
    """When a value was sent, monotonic seconds."""
    seconds: float = _STAMP.unpack_from(value, at)[0]
    return seconds


class StampedFrame:
    """One request, sent over and over with a new time in it."""

    def __init__(self, topic: str, partition: int, records: int, value_bytes: int) -> None:
        self._frame = bytearray(produce_frame(topic, records, value_bytes))
        self._batch_at = len(self._frame) - len(record_batch(records, value_bytes))
        self._value_at = self._batch_at + value_at(value_bytes)
        struct.pack_into(">i", self._frame, self._batch_at - 8, partition)

    def stamped(self) -> bytes:
        """The request with the time of now."""
        frame, batch_at = self._frame, self._batch_at
        _STAMP.pack_into(frame, self._value_at, time.monotonic())
        covered = memoryview(frame)[batch_at + _COVERED_AT :]
        struct.pack_into(">I", frame, batch_at + _CRC_AT, crc32c.crc32c(covered))
        return bytes(frame)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of figures in order; 0 where there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
