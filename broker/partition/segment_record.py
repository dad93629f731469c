"""What the record of a segment's ledger says of it beside what every ledger's record says. Pure."""

from __future__ import annotations

from gnomon.bookie.record import LedgerRecord
from gnomon.broker.partition.entry import Offset

EPOCH = "epoch"
CREATED_MS = "created_ms"
START_OFFSET = "start_offset"
NEXT_OFFSET = "next_offset"
MAX_TIMESTAMP = "max_timestamp"
YOUNGEST_MS = "youngest_ms"
BATCHES_BYTES = "batches_bytes"

OFFSET_DIGITS = 20


def segment_name(prefix: str, base_offset: Offset) -> str:
    """The name of the ledger of the segment that begins at an offset."""
    return f"{prefix}{base_offset:0{OFFSET_DIGITS}}"


def base_offset_of(name: str) -> Offset:
    """The offset that the segment of this name, or of the key of its record, begins at."""
    return Offset(int(name.rpartition("/")[2]))


def size_and_youngest(record: LedgerRecord) -> tuple[int, int]:
    """A sealed segment's bytes of batches, and the time of its youngest record.

    Older records say neither: then whole entries are counted, snapshots too, and a segment without timestamps stays.
    """
    properties = record.properties
    return properties.get(BATCHES_BYTES, record.length_bytes), properties.get(YOUNGEST_MS, properties[MAX_TIMESTAMP])
