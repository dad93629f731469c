"""Pre-built Produce requests for the raw generator."""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import crc32c


def varint(number: int) -> bytes:
    """Zigzag varint of a signed 64-bit number."""
    zigzag, encoded = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def record_batch(
    records: int,
    value_bytes: int,
    headers: Mapping[bytes, bytes] = MappingProxyType({}),
    producer: int = -1,
    keys: Sequence[bytes] = (),
) -> bytes:
    """One magic-2 batch, uncompressed; values are random, so that no layer can win by compressing.

    Args:
        headers: of each record; the value of the last one ends the batch.
        producer: the id of an idempotent producer, whose first batch it is; -1 for none.
        keys: one for each record; none for records without keys.
    """
    now_ms, body = int(time.time() * 1000), bytearray()
    last = varint(len(headers)) + b"".join(map(_sized, itertools.chain(*headers.items())))
    for delta in range(records):
        key = _sized(keys[delta]) if keys else varint(-1)
        record = b"\0" + varint(0) + varint(delta) + key + _sized(os.urandom(value_bytes)) + last
        body += varint(len(record)) + record
    epoch, sequence = (-1, -1) if producer < 0 else (0, 0)
    numbers = (now_ms, now_ms, producer, epoch, sequence, records)
    covered = struct.pack(">hiqqqhii", 0, records - 1, *numbers) + bytes(body)
    return struct.pack(">qiibI", 0, len(covered) + 9, 0, 2, crc32c.crc32c(covered)) + covered


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def produce_frame(topic: str, batch: bytes) -> bytes:
    """A Produce v7 request with acks=all for partition 0, its length in front; the batch ends it."""
    name = topic.encode()
    request = struct.pack(">hhih5shhii", 0, 7, 1, 5, b"bench", -1, -1, 30_000, 1)
    request += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">i", len(request)) + request
