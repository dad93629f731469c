"""Pre-built Produce requests for the raw generator."""

from __future__ import annotations

import os
import struct
import time

import crc32c


def varint(number: int) -> bytes:
    """Zigzag varint of a signed 64-bit number."""
    zigzag, encoded = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def record_batch(records: int, value_bytes: int) -> bytes:
    """One magic-2 batch, uncompressed, without keys; values are random, so that no layer can win by compressing."""
    now_ms, body = int(time.time() * 1000), bytearray()
    for delta in range(records):
        record = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(value_bytes) + os.urandom(value_bytes) + b"\0"
        body += varint(len(record)) + record
    covered = struct.pack(">hiqqqhii", 0, records - 1, now_ms, now_ms, -1, -1, -1, records) + bytes(body)
    return struct.pack(">qiibI", 0, len(covered) + 9, 0, 2, crc32c.crc32c(covered)) + covered


def produce_frame(topic: str, records: int, value_bytes: int) -> bytes:
    """A Produce v7 request with acks=all for partition 0, its length in front."""
    name, batch = topic.encode(), record_batch(records, value_bytes)
    request = struct.pack(">hhih5shhii", 0, 7, 1, 5, b"bench", -1, -1, 30_000, 1)
    request += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">i", len(request)) + request
