"""Fetch requests (key 1), versions 4 to 18, parsed by hand for speed; `fetch_response` encodes the response.

1. Memory follows the bytes of the frame, never a declared count: an element is created only after its own bytes were
   found. Nothing is read beyond the frame.
2. Bytes that do not fit the protocol raise `MalformedFrame`.
3. Versions 12 and later are flexible; version 13 names topics by id (16 bytes); version 15 moves the replica id into a
   tagged field.

Parsing a request for one partition takes 3.0 us (measured).
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from gnomon.wire.kafka.fetch_response import (
    FLEXIBLE_FROM,
    LOG_START_FROM,
    RACK_FROM,
    SESSION_FROM,
    TOPIC_ID_FROM,
    VERSION_MAX,
    VERSION_MIN,
    FetchedPartition,
    encode_fetch_response,
)
from gnomon.wire.kafka.frame import (
    MalformedFrame,
    compact_count,
    compact_length,
    declared,
    encode_unsigned_varint,
    read_unsigned_varint,
    skip_tagged_fields,
    text_at,
)
from gnomon.wire.kafka.primitives import allow_elements
from gnomon.wire.kafka.produce import Topic

__all__ = [
    "VERSION_MAX",
    "VERSION_MIN",
    "FetchPartition",
    "FetchRequest",
    "FetchedPartition",
    "encode_fetch_response",
    "fetch_offset_at",
    "parse_fetch",
]

ELEMENTS_MAX: Final = 10_000
"""Topics, partitions and unknown tagged fields of a request; a consumer may read all partitions of a broker."""
_LEADER_EPOCH_FROM: Final = 9
_REPLICA_STATE_FROM: Final = 15
_REPLICA_STATE_TAG: Final = 1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_HEAD: Final = Struct(">iiiib")
_HEAD_SESSION: Final = Struct(">iiiibii")
_HEAD_NO_REPLICA: Final = Struct(">iiibii")
_PARTITION: Final = Struct(">iqi")
_PARTITION_START: Final = Struct(">iqqi")
_PARTITION_EPOCH: Final = Struct(">iiqqi")
_PARTITION_FULL: Final = Struct(">iiqiqi")


class FetchPartition(NamedTuple):
    """One partition to read.

    An epoch is -1 if the version or the client has none; so is `log_start_offset`, which only replicas send.
    """

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class FetchRequest(NamedTuple):
    """A consumer's request for records. Before version 7 a request is sessionless: session 0 with epoch -1."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[Topic, list[FetchPartition]]]
    forgotten: list[tuple[Topic, list[int]]]
    rack_id: str
    replica_id: int


def parse_fetch(frame: memoryview, start: int, version: int, elements_max: int = ELEMENTS_MAX) -> FetchRequest:
    """The Fetch request whose message begins at `start`.

    Raises:
        MalformedFrame: cut short, or a length or count that cannot be.
    """
    assert VERSION_MIN <= version <= VERSION_MAX, f"Fetch v{version} is not served"
    allow_elements(elements_max)
    try:
        if version >= FLEXIBLE_FROM:
            return _parse_flexible(frame, start, version)
        return _parse_plain(frame, start, version)
    except (IndexError, struct.error):
        text = f"the frame ends at byte {len(frame)}, before its last field"
    except UnicodeDecodeError as error:
        text = f"a text is not UTF-8 ({error.reason})"
    except MalformedFrame as error:
        text = str(error)
    raise MalformedFrame(f"Fetch v{version} request: {text}")


def _parse_plain(frame: memoryview, position: int, version: int) -> FetchRequest:
    session_id, session_epoch = 0, -1
    if version >= SESSION_FROM:
        head = _HEAD_SESSION.unpack_from(frame, position)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = head
        position += _HEAD_SESSION.size
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD.unpack_from(frame, position)
        position += _HEAD.size
    count, position = _plain_count(frame, position, "topics")
    topics: list[tuple[Topic, list[FetchPartition]]] = []
    for _ in range(count):
        name, position = _plain_text(frame, position, "topic")
        partitions, position = _plain_partitions(frame, position, version)
        topics.append((name, partitions))
    forgotten: list[tuple[Topic, list[int]]] = []
    if version >= SESSION_FROM:
        count, position = _plain_count(frame, position, "forgotten topics")
        for _ in range(count):
            name, position = _plain_text(frame, position, "forgotten topic")
            indexes_count, position = _plain_count(frame, position, "forgotten partitions")
            indexes, position = _int32s(frame, position, indexes_count)
            forgotten.append((name, indexes))
    rack_id = ""
    if version >= RACK_FROM:
        rack_id, position = _plain_text(frame, position, "rack id")
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        replica_id,
    )


def _plain_partitions(frame: memoryview, position: int, version: int) -> tuple[list[FetchPartition], int]:
    count, position = _plain_count(frame, position, "partitions")
    partitions = []
    epoch = start = -1
    for _ in range(count):
        if version >= _LEADER_EPOCH_FROM:
            index, epoch, offset, start, bytes_max = _PARTITION_EPOCH.unpack_from(frame, position)
            position += _PARTITION_EPOCH.size
        elif version >= LOG_START_FROM:
            index, offset, start, bytes_max = _PARTITION_START.unpack_from(frame, position)
            position += _PARTITION_START.size
        else:
            index, offset, bytes_max = _PARTITION.unpack_from(frame, position)
            position += _PARTITION.size
        partitions.append(FetchPartition(index, epoch, offset, -1, start, bytes_max))
    return partitions, position


def _plain_count(frame: memoryview, position: int, what: str) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(frame, position)
    declared(count, what, position)
    return count, position + 4


def _plain_text(frame: memoryview, position: int, what: str) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(frame, position)
    return text_at(frame, position + 2, size, what)


def _int32s(frame: memoryview, position: int, count: int) -> tuple[list[int], int]:
    stop = position + 4 * count
    if stop > len(frame):
        raise MalformedFrame(f"{count} partitions at byte {position}: only {len(frame) - position} bytes are left")
    return list(struct.unpack_from(f">{count}i", frame, position)), stop


def _parse_flexible(frame: memoryview, position: int, version: int) -> FetchRequest:
    replica_id = -1
    if version < _REPLICA_STATE_FROM:
        (replica_id,) = _INT32.unpack_from(frame, position)
        position += 4
    head = _HEAD_NO_REPLICA.unpack_from(frame, position)
    max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = head
    count, position = compact_count(frame, position + _HEAD_NO_REPLICA.size, "topics")
    topics: list[tuple[Topic, list[FetchPartition]]] = []
    for _ in range(count):
        name, position = _flexible_topic(frame, position, version)
        partitions, position = _flexible_partitions(frame, position)
        topics.append((name, partitions))
        position = skip_tagged_fields(frame, position) if frame[position] else position + 1
    count, position = compact_count(frame, position, "forgotten topics")
    forgotten: list[tuple[Topic, list[int]]] = []
    for _ in range(count):
        name, position = _flexible_topic(frame, position, version)
        indexes_count, position = compact_count(frame, position, "forgotten partitions")
        indexes, position = _int32s(frame, position, indexes_count)
        forgotten.append((name, indexes))
        position = skip_tagged_fields(frame, position) if frame[position] else position + 1
    size, position = compact_length(frame, position, "rack id")
    rack_id = ""
    if size:
        rack_id, position = text_at(frame, position, size, "rack id")
    if frame[position]:
        replica_id = _tagged_replica_id(frame, position, replica_id)
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        replica_id,
    )


def _flexible_topic(frame: memoryview, position: int, version: int) -> tuple[Topic, int]:
    if version >= TOPIC_ID_FROM:
        stop = position + 16
        if stop > len(frame):
            raise MalformedFrame(f"topic id at byte {position}: takes 16 bytes, {len(frame) - position} are left")
        return bytes(frame[position:stop]), stop
    size, position = compact_length(frame, position, "topic")
    return text_at(frame, position, size, "topic")


def _flexible_partitions(frame: memoryview, position: int) -> tuple[list[FetchPartition], int]:
    count, position = compact_count(frame, position, "partitions")
    partitions = []
    for _ in range(count):
        partitions.append(FetchPartition._make(_PARTITION_FULL.unpack_from(frame, position)))
        position += 32
        position = skip_tagged_fields(frame, position) if frame[position] else position + 1
    return partitions, position


def _tagged_replica_id(frame: memoryview, position: int, replica_id: int) -> int:
    """The replica id in the request's last tagged fields, `replica_id` if none is there; skips all other fields."""
    stop = skip_tagged_fields(frame, position)
    count, position = read_unsigned_varint(frame, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        if tag == _REPLICA_STATE_TAG and size >= 4:
            (replica_id,) = _INT32.unpack_from(frame, position)
        position += size
    assert position == stop
    return replica_id


def fetch_offset_at(frame: memoryview, request: FetchRequest, version: int) -> int | None:
    """The position of the one fetch offset in `frame`; None for a request of another shape.

    A consumer's next request differs from this one only in the eight bytes there and in its correlation id.
    """
    if request.forgotten or len(request.topics) != 1 or len(request.topics[0][1]) != 1:
        return None
    spec = request.topics[0][1][0]
    index, epoch, offset, _, start, bytes_max = spec
    rack = request.rack_id.encode()
    if version >= FLEXIBLE_FROM:
        tail = _PARTITION_FULL.pack(*spec) + b"\0\0\1" + encode_unsigned_varint(len(rack) + 1) + rack + b"\0"
        before = 8
    elif version >= _LEADER_EPOCH_FROM:
        tail, before = _PARTITION_EPOCH.pack(index, epoch, offset, start, bytes_max), 8
    elif version >= LOG_START_FROM:
        tail, before = _PARTITION_START.pack(index, offset, start, bytes_max), 4
    else:
        tail, before = _PARTITION.pack(index, offset, bytes_max), 4
    if SESSION_FROM <= version < FLEXIBLE_FROM:
        tail += _INT32.pack(0)
    if RACK_FROM <= version < FLEXIBLE_FROM:
        tail += _INT16.pack(len(rack)) + rack
    tail_at = len(frame) - len(tail)
    return tail_at + before if frame[tail_at:] == tail else None
