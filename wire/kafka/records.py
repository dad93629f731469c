"""The records inside a batch: read where a feature needs them, written for the broker's own topics and for clients.

1. `iterate_records` raises `MalformedBatch` unless the decompressed data consists of exactly as many records as the
   header declares. The checksum is not verified here: `batch.check_produced` verified it when the broker
   received the batch.
2. No length or count inside a record is used before a comparison with the bytes that are there.
3. Decompression is limited to a number of bytes that the caller gives (see `compression`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from gnomon.wire.kafka.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    BatchRejected,
    MalformedBatch,
    parse_batch,
)
from gnomon.wire.kafka.compression import Codec, CorruptData, UnpackedTooLarge, compress, decompress
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.primitives import Buffer

_VARINT_BYTES_MAX: Final = 10
_NULL: Final = b"\x01"
"""The varint -1."""

Header: TypeAlias = tuple[str, bytes | None]


class TooManyRecords(UnpackedTooLarge):
    """The records that may be read do not decide, however many bytes they may have."""


class Record(NamedTuple):
    """One record; offset and timestamp (milliseconds) are relative to the batch's base."""

    offset_delta: int = 0
    timestamp_delta: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


def iterate_records(batch_view: memoryview, bytes_max: int) -> Iterator[Record]:
    """The records of the batch at the start of the view, in order.

    Args:
        batch_view: a whole batch.
        bytes_max: the most bytes its records may decompress to.

    Raises:
        MalformedBatch: the header contradicts the records.
        UnpackedTooLarge: the records decompress to more than `bytes_max` bytes.
        CorruptData: the records do not decompress.
    """
    header = parse_batch(batch_view)
    data = bytes(decompress(header.compression, batch_view[HEADER_BYTES : header.size_bytes], bytes_max))
    if header.records_count < 0:
        raise MalformedBatch(f"record batch declares {header.records_count} records")
    yield from iterate_unpacked(data, header.records_count)


def unpacked_records(batch_view: memoryview, header: BatchHeader, bytes_max: int) -> bytes:
    """The records of a produced batch, decompressed.

    Args:
        batch_view: a whole batch.
        header: its header.
        bytes_max: the most bytes its records may decompress to.

    Raises:
        UnpackedTooLarge: they decompress to more.
        BatchRejected: they do not decompress.
    """
    try:
        return bytes(decompress(header.compression, batch_view[HEADER_BYTES:], bytes_max))
    except CorruptData as error:
        raise BatchRejected(ErrorCode.INVALID_RECORD, f"the records do not decompress: {error}") from None


def iterate_unpacked(data: bytes, count: int) -> Iterator[Record]:
    """The records of a batch whose records were decompressed, in order.

    Args:
        data: the records.
        count: how many the batch declares.

    Raises:
        MalformedBatch: these are not `count` records.
    """
    position = 0
    for index in range(count):
        try:
            record, position = _read_record(data, position)
        except IndexError:
            raise MalformedBatch(f"record {index} of {count} reaches beyond the {len(data)} bytes of records") from None
        except UnicodeDecodeError:
            raise MalformedBatch(f"record {index} of {count} has a header key that is not UTF-8") from None
        yield record
    if position != len(data):
        raise MalformedBatch(f"{len(data) - position} bytes follow the last of {count} records")


def read_keys(data: Buffer, position: int, count: int, key_bytes_max: int) -> tuple[list[Buffer | None], int]:
    """The keys of at most `count` records; reads only length and key of each record, in some 2 us a record.

    Args:
        data: the records of a batch, not compressed.
        position: where a record begins.
        key_bytes_max: a longer key is cut to this size.

    Returns:
        The keys, and the position after their records. The keys are fewer than `count` if a record cannot be read.
    """
    keys: list[Buffer | None] = []
    with suppress(IndexError, MalformedBatch):
        while len(keys) < count:
            _, _, at, stop = _read_deltas(data, position)
            size, at = _read_varint(data, at)
            if size < -1 or at + max(size, 0) > stop:
                break
            keys.append(None if size == -1 else data[at : at + min(size, key_bytes_max)])
            position = stop
    return keys, position


def read_keys_by_offset(
    data: Buffer, position: int, first: int, count: int, key_bytes_max: int
) -> tuple[list[Buffer | None], int]:
    """`read_keys` for a batch with offsets that have no record: the key of each offset, None for one without a record.

    Args:
        first: the offset delta of the first key.
        count: offsets to look at, from there on.

    Returns:
        The keys, and where the first record after them begins. The keys are fewer than `count` if a record cannot be
        read.
    """
    keys: list[Buffer | None] = []
    with suppress(IndexError, MalformedBatch):
        while position < len(data):
            _, offset_delta, at, stop = _read_deltas(data, position)
            if offset_delta >= first + count:
                break
            size, at = _read_varint(data, at)
            if size < -1 or at + max(size, 0) > stop or offset_delta < first + len(keys):
                return keys, position
            keys += [None] * (offset_delta - first - len(keys))
            keys.append(None if size == -1 else data[at : at + min(size, key_bytes_max)])
            position = stop
        return keys + [None] * (count - len(keys)), position
    return keys, position


def _read_record(data: bytes, position: int) -> tuple[Record, int]:
    timestamp_delta, offset_delta, position, stop = _read_deltas(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    count, position = _read_varint(data, position)
    if count < 0:
        raise MalformedBatch(f"record that ends at byte {stop} declares {count} headers")
    headers: tuple[Header, ...] = ()
    if count:
        headers, position = _read_headers(data, position, count)
    if position != stop:
        raise MalformedBatch(f"record that ends at byte {stop} by its length ends at byte {position} by its fields")
    return Record(offset_delta, timestamp_delta, key, value, headers), stop


def _read_deltas(data: Buffer, position: int) -> tuple[int, int, int, int]:
    """The deltas of timestamp and offset of the record at `position`, where its key begins, and where it ends."""
    size, position = _read_varint(data, position)
    stop = position + size
    if size < 0 or stop > len(data):
        raise MalformedBatch(f"record at byte {position} declares {size} bytes, {len(data) - position} are left")
    timestamp_delta, position = _read_varint(data, position + 1)
    offset_delta, position = _read_varint(data, position)
    return timestamp_delta, offset_delta, position, stop


def _read_headers(data: bytes, position: int, count: int) -> tuple[tuple[Header, ...], int]:
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise MalformedBatch(f"header key before byte {position} is null")
        value, position = _read_bytes(data, position)
        headers.append((key.decode(), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    if size == -1:
        return None, position
    stop = position + size
    if size < 0 or stop > len(data):
        raise MalformedBatch(f"field at byte {position} declares {size} bytes, {len(data) - position} are left")
    return data[position:stop], stop


def _read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits and the position after it; IndexError at the end of the data."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, second = byte & 0x7F, data[position + 1]
    if second < 0x80:  # most of the longer ones are the sizes of a record and of its value
        value |= second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
    raise MalformedBatch(f"varint that ends at byte {position} is longer than {_VARINT_BYTES_MAX} bytes")


def _varint(value: int) -> bytes:
    return _SHORT_VARINTS[value] if 0 <= value < _SHORT_MAX else _encode_varint(value)


def _encode_varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SHORT_MAX: Final = 512
_SHORT_VARINTS: Final = tuple(map(_encode_varint, range(_SHORT_MAX)))
"""The varints of most lengths and counts."""


def recompressed(batch_view: memoryview, codec: int, bytes_max: int, result_bytes_max: int) -> bytes:
    """The batch at the start of the view with its records in another codec; only length, attributes and CRC differ.

    Args:
        batch_view: a whole batch.
        codec: one of `Codec`.
        bytes_max: the most bytes its records may decompress to.
        result_bytes_max: the most bytes of the result, if it is compressed.

    Raises:
        MalformedBatch: its header is not valid.
        UnpackedTooLarge: the records decompress to more than `bytes_max` bytes.
        ResultTooLarge: the result would have more than `result_bytes_max`.
        CorruptData: the records do not decompress.
    """
    header = parse_batch(batch_view)
    records = decompress(header.compression, batch_view[HEADER_BYTES : header.size_bytes], bytes_max)
    body = compress(codec, records, max(result_bytes_max - HEADER_BYTES, 0))
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    length = HEADER_BYTES - 12 + len(body)
    head = HEADER.pack(*header._replace(length=length, attributes=attributes))
    crc = crc32c(body, crc32c(head[CRC_FROM:]))
    return b"".join((head[: CRC_FROM - 4], crc.to_bytes(4, "big"), head[CRC_FROM:], body))


def build_batch(
    records: Sequence[Record],
    *,
    base_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: int = Codec.NONE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A whole batch, ready to send or to append.

    Args:
        records: at least one, offset deltas rising; a producer's start at 0 and have no gaps.
        base_timestamp: milliseconds since 1970 that the records' deltas count from.
        base_offset: 0 for a producer.
        leader_epoch: -1 for a producer.
        producer_id: with `producer_epoch` and `base_sequence`, of an idempotent producer.
        compression: one of `Codec`.
    """
    assert records, "a batch has at least one record"
    return framed(
        b"".join([_encode_record(record) for record in records]),
        records_count=len(records),
        last_offset_delta=records[-1].offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp + max(record.timestamp_delta for record in records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        compression=compression,
        transactional=transactional,
        control=control,
    )


def framed(
    records: Buffer,
    *,
    records_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: int = Codec.NONE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A whole batch of records that are encoded already.

    Args:
        records: not compressed; the other arguments describe them as `BatchHeader` and `build_batch` do.
    """
    body = compress(compression, records)
    attributes = compression | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    head = HEADER.pack(
        base_offset,
        HEADER_BYTES - 12 + len(body),
        leader_epoch,
        2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    crc = crc32c(body, crc32c(head[CRC_FROM:]))
    return b"".join((head[: CRC_FROM - 4], crc.to_bytes(4, "big"), head[CRC_FROM:], body))


def _encode_record(record: Record) -> bytes:
    offset_delta, timestamp_delta, key, value, headers = record
    parts = [
        b"\0",
        _varint(timestamp_delta),
        _varint(offset_delta),
        *_sized(key),
        *_sized(value),
        _varint(len(headers)),
    ]
    for header_key, header_value in headers:
        parts += (*_sized(header_key.encode()), *_sized(header_value))
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(field: bytes | None) -> tuple[bytes, bytes]:
    return (_NULL, b"") if field is None else (_varint(len(field)), field)


def find_by_timestamp(
    batch_view: memoryview, timestamp: int, bytes_max: int, records_max: int, start_offset: int = 0
) -> tuple[int, int] | None:
    """The (offset, timestamp) of the batch's first record with this timestamp or a later one; None when there is none.

    The records of a batch with log append time all have its max timestamp. Offsets count from the base offset in the
    view, so it has to be the batch as stored. Only the deltas of a record are read, 0.7 us each.

    Args:
        batch_view: a whole batch.
        timestamp: milliseconds since 1970.
        bytes_max: the most bytes its records may decompress to.
        records_max: the most records to read.
        start_offset: records below this offset do not count.

    Raises:
        MalformedBatch: the header contradicts the records, or a record is outside of the header's range.
        UnpackedTooLarge: the records decompress to more than `bytes_max` bytes.
        TooManyRecords: the first `records_max` records do not decide.
        CorruptData: the records do not decompress.
    """
    header = parse_batch(batch_view)
    if header.max_timestamp < timestamp:
        return None
    if header.is_log_append_time and header.is_dense:
        return max(header.base_offset, start_offset), header.max_timestamp
    for offset, found in _times(batch_view, header, bytes_max, records_max):
        if found >= timestamp and offset >= start_offset:
            if found > header.max_timestamp or not header.base_offset <= offset < header.next_offset:
                raise MalformedBatch(f"record of offset {offset} and timestamp {found}: not of its batch")
            return offset, found
    if header.records_count > records_max:
        raise TooManyRecords(
            f"none of the first {records_max} of {header.records_count} records is as late as {timestamp}"
        )
    return None


def largest_timestamp(batch_view: memoryview, bytes_max: int, records_max: int, start_offset: int) -> int:
    """The largest timestamp of the batch's records from an offset on; -1 if there are none.

    Args: as of `find_by_timestamp`, which describes the errors too; `records_max` bounds all records of the batch.
    """
    header = parse_batch(batch_view)
    if header.records_count > records_max:
        raise TooManyRecords(f"the batch has {header.records_count} records, at most {records_max} are read")
    times = _times(batch_view, header, bytes_max, records_max)
    return max((found for offset, found in times if offset >= start_offset), default=-1)


def _times(batch_view: memoryview, header: BatchHeader, bytes_max: int, records_max: int) -> Iterator[tuple[int, int]]:
    """The offset and the timestamp of each record, up to `records_max` records."""
    append_time = header.is_log_append_time
    data = bytes(decompress(header.compression, batch_view[HEADER_BYTES : header.size_bytes], bytes_max))
    position = 0
    for index in range(min(header.records_count, records_max)):
        try:
            timestamp_delta, offset_delta, _, position = _read_deltas(data, position)
        except IndexError:
            raise MalformedBatch(f"record {index} reaches beyond the {len(data)} bytes of records") from None
        time = header.max_timestamp if append_time else header.base_timestamp + timestamp_delta
        yield header.base_offset + offset_delta, time
