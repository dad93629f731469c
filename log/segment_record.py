"""The names of segments' ledgers, and the properties in their records. Pure.

1. A segment's ledger is named `<base offset>` in 20 digits after the prefix of its partition, so that the names of a
   chain are ordered as the log is.
2. A ledger with the rewritten records of others is named `<base offset>.<cleaning>`: `<cleaning>` is the number of the
   rewrite, from 1 on. The ledger takes the place of the others in the transaction that deletes them, so a chain has one
   ledger for each base offset.
3. No segment has any other name: `parse_segment_name` raises an error for it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.record import LedgerRecord
from gnomon.log.entry import Offset

EPOCH = "epoch"
"""The leader epoch of the last claim."""
CREATED_MS = "created_ms"
"""When the segment began, in milliseconds since 1970."""
START_OFFSET = "start_offset"
"""Of the first segment: where the log begins, unless it begins with the segment."""
LAST_RECORD = "last_record"
"""The SN of the last record before the first entry that remains, for the time when neither entry nor segment remains.

A roll records it for the segment that begins, and the removal of all records for the segment that they were in.
"""
NEXT_OFFSET = "next_offset"
"""Of a sealed segment, as all below: the offset after its last record."""
MAX_TIMESTAMP = "max_timestamp"
"""The largest timestamp of its records, -1 where none has any."""
YOUNGEST_MS = "youngest_ms"
"""The time that retention counts from: the largest timestamp, else the time of the last append."""
BATCHES_BYTES = "batches_bytes"
"""The bytes of its record batches."""

OFFSET_DIGITS = 20


_NAME = re.compile(rf"([0-9]{{{OFFSET_DIGITS}}})(?:\.([1-9][0-9]*))?")


class NotASegment(LedgerError, ValueError):
    """A ledger among those of a partition has a name that no segment has."""


class SegmentName(NamedTuple):
    """The last part of the name of a segment's ledger."""

    base_offset: Offset
    """The first offset that the segment covers."""
    cleaning: int = 0
    """The number of rewrites of the records of this place; 0 for the ledger that they were appended to."""


def segment_name(prefix: str, base_offset: Offset, cleaning: int = 0) -> str:
    """The name of the ledger of the segment that begins at an offset."""
    return f"{prefix}{base_offset:0{OFFSET_DIGITS}}" + (f".{cleaning}" if cleaning else "")


def parse_segment_name(name: str) -> SegmentName:
    """Undoes `segment_name`, for the name of a ledger or the key of its record.

    Raises:
        NotASegment: no segment has this name.
    """
    found = _NAME.fullmatch(name.rpartition("/")[2])
    if found is None:
        raise NotASegment(
            f"{name!r} is no segment of a partition: their names end with a base offset of {OFFSET_DIGITS} digits, or"
            " with <base offset>.<cleaning>",
            "delete that ledger, or upgrade gnomon if a newer one wrote it",
        )
    return SegmentName(Offset(int(found[1])), int(found[2] or 0))


def is_segment_name(name: str) -> bool:
    """Whether a segment can have this name."""
    return _NAME.fullmatch(name.rpartition("/")[2]) is not None


def size_and_youngest(record: LedgerRecord) -> tuple[int, int]:
    """A sealed segment's bytes of batches, and the time of its youngest record."""
    return record.properties[BATCHES_BYTES], record.properties[YOUNGEST_MS]
