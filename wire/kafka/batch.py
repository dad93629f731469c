"""The header of a record batch (magic 2): reads and replaces its fields without decoding the records.

1. Base offset (bytes 0..7), length (8..11) and leader epoch (12..15) are outside the checksum: `patched_prefix`
   replaces offset and epoch, and no other byte of the batch changes.
2. The checksum is CRC-32C over bytes 21 to the end of the batch. In this module only `with_log_append_time` changes
   these bytes, and computes a new checksum.
3. Nothing is read beyond the batch, and a declared length or count is used only after a comparison with the data.
4. A batch from a producer is accepted only by `check_produced`; `parse_batch` alone is for batches accepted before.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from gnomon.wire.kafka.errors import ErrorCode

HEADER: Final = Struct(">qiibIhiqqqhii")
"""The layout of `BatchHeader` on the wire."""
_PREFIX: Final = Struct(">qii")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_TIMESTAMP: Final = Struct(">q")

HEADER_BYTES: Final = HEADER.size
"""Size of the header; the records follow."""
PREFIX_BYTES: Final = 16
"""Bytes that `patched_prefix` replaces."""
_LENGTH_END: Final = 12
_LENGTH_EMPTY: Final = HEADER_BYTES - _LENGTH_END
RECORD_BYTES_MIN: Final = 7
"""The smallest record: length, attributes, two deltas, no key, no value, no headers, a byte each."""
COMPRESSED_RECORDS_MAX: Final = 1_000_000
"""Largest record count accepted of a batch that is not decompressed; the limit of librdkafka's `batch.num.messages`."""
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
CRC_FROM: Final = 21
"""The checksum covers the batch from here to its end."""
ATTRIBUTES_LOW_AT: Final = 22
"""Position of the low byte of the attributes, which has the bits of `COMPRESSION_MASK` and all others that are in use.
"""
RECORDS_COUNT_AT: Final = HEADER_BYTES - 4
"""Position of the number of records, 4 bytes."""
_MAX_TIMESTAMP_AT: Final = 35
_MAX_TIMESTAMP_END: Final = 43

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
_SEQUENCE_MASK: Final = 0x7FFFFFFF

NO_PRODUCER_ID: Final = -1


class MalformedBatch(Exception):
    """The bytes are no record batch; the text says what was expected and where."""


class BatchRejected(Exception):
    """A produced batch must not be appended.

    Args:
        error_code: for the partition's answer.
        text: what is wrong and what the producer has to send instead.
    """

    def __init__(self, error_code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.error_code = error_code
        self.text = text


class BatchHeader(NamedTuple):
    """The fixed fields of a batch, in the order of the wire (KIP-98). Timestamps are milliseconds since 1970."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def is_dense(self) -> bool:
        """Whether each offset that the batch covers has a record: true as produced, false if compaction left gaps."""
        return self.records_count == self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, prefix included."""
        return self.length + _LENGTH_END

    @property
    def next_offset(self) -> int:
        """The offset after the last one that the batch covers."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last record's sequence, which wraps to 0 after 2^31 - 1; -1 when the batch has none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK

    @property
    def compression(self) -> int:
        """The codec's number, see `compression`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def parse_batch(view: memoryview, position: int = 0) -> BatchHeader:
    """The header of the batch that starts at `position`; the whole batch must lie inside `view`.

    Raises:
        MalformedBatch: cut short, a length that cannot be, or another magic than 2.
    """
    left = len(view) - position
    if position < 0 or left < HEADER_BYTES:
        raise MalformedBatch(f"record batch at byte {position}: {left} bytes left, a header takes {HEADER_BYTES}")
    header = BatchHeader._make(HEADER.unpack_from(view, position))
    if header.magic != 2:
        raise MalformedBatch(f"record batch at byte {position}: magic {header.magic}, only 2 is known")
    if not HEADER_BYTES <= header.length + _LENGTH_END <= left:
        raise MalformedBatch(
            f"record batch at byte {position}: declares {header.length + _LENGTH_END} bytes, {left} are there"
        )
    return header


def check_produced(view: memoryview, batch_bytes_max: int) -> BatchHeader:
    """Accepts the records of one partition of a Produce request, or raises the reason for a refusal.

    Exactly one magic-2 batch must fill `view`; rules and error codes follow Kafka's validation of produced records.

    Args:
        view: the partition's records as received.
        batch_bytes_max: the topic's `max.message.bytes`.

    Raises:
        BatchRejected: with the Kafka error code for the answer.
    """
    if len(view) <= _MAGIC_AT:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD if not view else ErrorCode.CORRUPT_MESSAGE,
            f"expected one record batch, got {len(view)} bytes",
        )
    magic = view[_MAGIC_AT]
    if magic != 2:
        raise BatchRejected(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format {magic} is not supported: send format 2"
        )
    try:
        header = parse_batch(view)
    except MalformedBatch as error:
        raise BatchRejected(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    size = header.length + _LENGTH_END
    if size > batch_bytes_max:
        raise BatchRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, max.message.bytes allows {batch_bytes_max}: send smaller batches",
        )
    if size != len(view):
        raise BatchRejected(
            ErrorCode.INVALID_RECORD,
            f"{len(view) - size} bytes follow the record batch: send one batch for each partition",
        )
    crc = crc32c(view[CRC_FROM:])
    if crc != header.crc:
        raise BatchRejected(ErrorCode.CORRUPT_MESSAGE, f"CRC-32C is {crc:08x}, the header says {header.crc:08x}")
    _check_fields(header)
    return header


def _check_fields(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise BatchRejected(ErrorCode.INVALID_RECORD, f"base offset is {header.base_offset}: a producer sends 0")
    _check_count(header)
    attributes = header.attributes
    codec = attributes & COMPRESSION_MASK
    if codec > 4:
        raise BatchRejected(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression codec {codec} is unknown: use 0 to 4",
        )
    if attributes & LOG_APPEND_TIME:
        raise BatchRejected(ErrorCode.INVALID_TIMESTAMP, "log append time is set by the broker: send create time")
    if attributes & CONTROL:
        raise BatchRejected(ErrorCode.INVALID_RECORD, "control batches are written by the broker: send data batches")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent base sequence {header.base_sequence}: 0 or more expected",
        )


def _check_count(header: BatchHeader) -> None:
    count = header.records_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD,
            f"{count} records with last offset delta {header.last_offset_delta}: expected at least one, without gaps",
        )
    most = COMPRESSED_RECORDS_MAX if header.compression else (header.length - _LENGTH_EMPTY) // RECORD_BYTES_MIN
    if count > most:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD,
            f"{count} records in a batch of {header.size_bytes} bytes: at most {most} are taken, send smaller batches",
        )


def patched_prefix(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The batch's first 16 bytes at its place in the log; the rest, `view[16:]`, stays as it is."""
    return _PREFIX.pack(base_offset, header.length, leader_epoch)


def with_log_append_time(view: memoryview, now_ms: int) -> bytes:
    """A copy of the batch that fills `view`, stamped with the broker's time: attribute bit, max timestamp and CRC.

    The base timestamp and the records' deltas stay: readers use the max timestamp for every record of such a batch.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(view, CRC_FROM)
    stamped = b"".join(
        (
            _ATTRIBUTES.pack(attributes | LOG_APPEND_TIME),
            view[CRC_FROM + 2 : _MAX_TIMESTAMP_AT],
            _TIMESTAMP.pack(now_ms),
        )
    )
    crc = crc32c(view[_MAX_TIMESTAMP_END:], crc32c(stamped))
    return b"".join((view[:_CRC_AT], _CRC.pack(crc), stamped, view[_MAX_TIMESTAMP_END:]))
