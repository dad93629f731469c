"""Pre-built requests of writers with conditions for the raw generator, and the fields that it sets in each of them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.frame import produce_frame, record_batch
from gnomon.log.sn import SN
from gnomon.log.term_headers import EXPECTED_OFFSET
from gnomon.wire import rpc

HELLO = b"".join(rpc.encode([rpc.HELLO, rpc.MAGIC, list(rpc.VERSIONS), "broker", None]))
CRC_AT, COVERED_AT, PRODUCER_AT, SEQUENCE_AT = 17, 21, 43, 53
"""Positions in a batch of magic 2."""
DIGITS = 19
"""Length of the expected offset in a header."""
_CALL, _PARTITION, _EXPECTED = 0xFEDCBA98, 0xFEDCBA97, 0x7EDCBA9876543210
"""Numbers in a frame that is not finished, where fields will be."""
_INT64 = b"\xd3"


@dataclass(frozen=True, slots=True)
class WriteFrame:
    """One request, and the arguments of the generator for its fields."""

    request: bytes
    fields: tuple[str, ...]


def native_write(
    topic: str, topic_id: str, value_bytes: int, *, conditional: bool, numbered: bool, partition_step: int
) -> WriteFrame:
    """A `write` of one record, with its frame's length in front.

    Args:
        conditional: the writer expects its own last record to be the end of the log.
        numbered: the batch has a producer id and a sequence, as those of gnomon's clients have.
        partition_step: 1 if each connection writes to a partition of its own, 0 if all write to the first one.
    """
    expected = SN(sequence_id=_EXPECTED).encode() if conditional else None
    batch = record_batch(1, value_bytes, producer=0 if numbered else -1)
    head = [rpc.CALL, _CALL, "write", [topic, topic_id, _PARTITION, expected, None, False]]
    frame = bytearray(b"".join(rpc.encode(head, batch)))
    batch_at = len(frame) - len(batch)
    fields = [
        f"4:{place_of(frame, _CALL, 4)}:0:0:requests",
        f"4:{place_of(frame, _PARTITION, 4)}:0:{partition_step}:none",
    ]
    if conditional:
        at = place_of(frame, _EXPECTED, 8)
        frame[at - 1 : at] = _INT64  # the sequence id of an empty log is negative
        fields.append(f"8:{at}:-1:0:position")
    return WriteFrame(bytes(frame), (*fields, *_batch_fields(batch_at, numbered=numbered)))


def kafka_write(topic: str, value_bytes: int, *, conditional: bool, numbered: bool, partition_step: int) -> WriteFrame:
    """A Produce of one record, otherwise like `native_write`; the condition is in a header of the record."""
    headers = {EXPECTED_OFFSET.encode(): b"0" * DIGITS} if conditional else {}
    batch = record_batch(1, value_bytes, headers, producer=0 if numbered else -1)
    request = produce_frame(topic, batch)
    batch_at = len(request) - len(batch)
    fields = [f"4:{batch_at - 8}:0:{partition_step}:none"]
    if conditional:
        fields.append(f"{DIGITS}:{len(request) - DIGITS}:0:0:position")
    return WriteFrame(request, (*fields, *_batch_fields(batch_at, numbered=numbered)))


def _batch_fields(batch_at: int, *, numbered: bool) -> tuple[str, ...]:
    numbers = (f"8:{batch_at + PRODUCER_AT}:{time.time_ns()}:1:none", f"4:{batch_at + SEQUENCE_AT}:0:0:requests")
    return (*numbers * numbered, f"crc:{batch_at + CRC_AT}:{batch_at + COVERED_AT}")


def place_of(frame: bytes | bytearray, number: int, width: int) -> int:
    """The position of a number that a frame has once."""
    encoded = number.to_bytes(width, "big")
    assert frame.count(encoded) == 1, "a number of the frame is not unique"
    return frame.index(encoded)
