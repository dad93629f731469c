"""Pre-built requests on tables for the raw generator, and the fields that it sets in each of them."""

from __future__ import annotations

import os
import time
from typing import Any

from bench.frame import produce_frame, record_batch
from bench.writes.frames import COVERED_AT, CRC_AT, WriteFrame, place_of
from gnomon.log.tables.operation_id import WRITER_BYTES
from gnomon.log.tables.operations import CompareOperator, CompareTarget, Comparison, GetKey, PutKey, encode_operations
from gnomon.wire import rpc

KEY_BYTES = 8
_CALL, _KEY, _WRITER, _NUMBER = 0xFEDCBA91, 0xFEDCBA9876543211, 0xFEDCBA9876543212, 0x7EDCBA9876543213
_ANSWERED, _REVISION, _RECORD_KEYS = 0x7EDCBA9876543214, 0x7EDCBA9876543215, 0xFEDCBA9700000000
"""Numbers in a frame that is not finished, where fields will be."""
_INT64 = b"\xd3"


def key_of(number: int) -> bytes:
    """The key with a number."""
    return number.to_bytes(KEY_BYTES, "big")


def put_frame(topic: str, topic_id: str, keys: int, value_bytes: int) -> WriteFrame:
    """A numbered put of a random one of `keys` keys."""
    put = encode_operations([PutKey(key_of(_KEY), os.urandom(value_bytes))])
    return _write_frame(topic, topic_id, [], put, [], (f"{KEY_BYTES}:{{key}}:0:{keys}:random",))


def swap_frame(topic: str, topic_id: str, value_bytes: int) -> WriteFrame:
    """A numbered put of one key if it still has the revision that the connection knows; otherwise a get of it."""
    key = key_of(0)
    compared = Comparison(key, CompareTarget.REVISION, CompareOperator.EQUAL, _REVISION).encode()
    put, get = encode_operations([PutKey(key, os.urandom(value_bytes))]), encode_operations([GetKey(key)])
    return _write_frame(topic, topic_id, [compared], put, get, ())


def get_frame(topic: str, topic_id: str, keys: int) -> WriteFrame:
    """A linearizable get of a random one of `keys` keys."""
    return _call_frame("table_get", [topic, topic_id, 0, key_of(_KEY), False], f"{KEY_BYTES}:{{key}}:0:{keys}:random")


def scan_frame(topic: str, topic_id: str, keys: int, limit: int) -> WriteFrame:
    """A page of `limit` entries after a random key that has as many behind it."""
    args = [topic, topic_id, 0, b"", key_of(_KEY), limit, False, False]
    return _call_frame("table_scan", args, f"{KEY_BYTES}:{{key}}:0:{keys - limit}:random")


def watch_frame(topic: str, topic_id: str, revision: int) -> bytes:
    """The request for a watch of all keys from a revision on."""
    return b"".join(rpc.encode([rpc.OPEN, 0, "table_watch", [topic, topic_id, 0, b"", revision]]))


def batch_frame(topic: str, records: int, keys: int, value_bytes: int) -> WriteFrame:
    """A Produce of a batch with random ones of `keys` keys."""
    places = [_RECORD_KEYS + number for number in range(records)]
    batch = record_batch(records, value_bytes, keys=[key_of(place) for place in places])
    request = produce_frame(topic, batch)
    batch_at = len(request) - len(batch)
    fields = [f"{KEY_BYTES}:{place_of(request, place, KEY_BYTES)}:0:{keys}:random" for place in places]
    return WriteFrame(request, (*fields, f"crc:{batch_at + CRC_AT}:{batch_at + COVERED_AT}"))


def _write_frame(
    topic: str, topic_id: str, comparisons: list[Any], then: list[Any], otherwise: list[Any], fields: tuple[str, ...]
) -> WriteFrame:
    writer = os.urandom(WRITER_BYTES - 8) + _WRITER.to_bytes(8, "big")
    args = [topic, topic_id, 0, writer, _NUMBER, _ANSWERED, comparisons, then, otherwise]
    head = bytearray(b"".join(rpc.encode([rpc.CALL, _CALL, "table_write", args])))
    own = [f"8:{place_of(head, _WRITER, 8)}:{time.time_ns()}:1:none"]
    own += [f"8:{place_of(head, number, 8)}:0:0:requests" for number in (_NUMBER, _ANSWERED)]
    if comparisons:
        at = place_of(head, _REVISION, 8)
        head[at - 1 : at] = _INT64  # the revision of an absent key is negative
        own.append(f"8:{at}:-1:0:position")
    return _finished(head, (*own, *fields))


def _call_frame(method: str, args: list[Any], *fields: str) -> WriteFrame:
    return _finished(bytearray(b"".join(rpc.encode([rpc.CALL, _CALL, method, args]))), fields)


def _finished(frame: bytearray, fields: tuple[str, ...]) -> WriteFrame:
    key_at = place_of(frame, _KEY, KEY_BYTES) if any("{key}" in field for field in fields) else 0
    call = f"4:{place_of(frame, _CALL, 4)}:0:0:requests"
    return WriteFrame(bytes(frame), (call, *(field.format(key=key_at) for field in fields)))
