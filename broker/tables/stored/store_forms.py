"""The forms of keys and values in the store of tables. Pure.

| database | key | value |
|---|---|---|
| tables | `format` | the number of the format |
| tables | `next` | the number of the next table |
| tables | `p` + topic id (16), partition (4) | the table's number (4), or that and a position (`TablePosition`) |
| tables | `d` + number (4) | empty: a table that was discarded, whose rows are being removed |
| entries | number (4), key | the stored entry (`key_entry`) |
| expiries | number (4), expiry in ms (7), key | empty |
| operations | number (4), client (16), operation (8) | the operation's place and outcome |
| noted | number (4), key | the entry that an image needs, or empty for none |

1. Numbers are big-endian, so the rows of a table are in the order of its keys.
2. The values of `entries`, `operations` and `tables` end with a CRC32C of key and value: a damaged one is never taken
   for good.
3. A key of KEY_BYTES_MAX bytes fits into an LMDB key of 511 with the 11 bytes before it.
"""

from __future__ import annotations

import uuid
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

import msgpack
from crc32c import crc32c

from gnomon.broker.tables.recent_operations import DoneOperation
from gnomon.log.entry import Offset
from gnomon.log.tables.operation_id import WRITER_BYTES, OperationId

FORMAT: Final = b"1"
FORMAT_KEY: Final = b"format"
NEXT_KEY: Final = b"next"
TABLES: Final = "tables"
ENTRIES: Final = "entries"
EXPIRIES: Final = "expiries"
OPERATIONS: Final = "operations"
NOTED: Final = "noted"
PARTITIONS: Final = b"p"
DISCARDED: Final = b"d"
ROWS: Final = (ENTRIES, EXPIRIES, OPERATIONS, NOTED)
"""The databases whose keys begin with the number of a table."""
DATABASES: Final = (TABLES, *ROWS)
NUMBER_BYTES: Final = 4
EXPIRY_BYTES: Final = 7

Buffer: TypeAlias = bytes | memoryview
_CRC: Final = Struct(">I")
_NUMBER: Final = Struct(">I")
_OPERATION_KEY: Final = Struct(f">I{WRITER_BYTES}sQ")
_DONE: Final = Struct(">QQqQB")


class RowDamaged(Exception):
    """A row of the store is not what was written."""


class PageDamaged(RowDamaged):
    """A page of the store's file is damaged."""


class TablePosition(NamedTuple):
    """The part of a log that a stored table has applied."""

    applied: Offset
    """The end of it."""
    record: bytes | None
    """The identity of the last batch before it (`table_log`); None if there is none."""
    keys: int
    bytes_used: int


def seal(key: Buffer, value: bytes) -> bytes:
    """The stored form of a value."""
    return value + _CRC.pack(crc32c(value, crc32c(key)))


def unseal(key: Buffer, stored: Buffer) -> bytes:
    """Undoes `seal`.

    Raises:
        RowDamaged: it is not what was written.
    """
    value = bytes(stored[: -_CRC.size])
    if bytes(stored[-_CRC.size :]) != _CRC.pack(crc32c(value, crc32c(key))):
        raise RowDamaged(f"the row {bytes(key)[:80]!r} of the store of tables is damaged")
    return value


def partition_key(topic_id: uuid.UUID, partition: int) -> bytes:
    """The key of the record of a partition's table."""
    return topic_prefix(topic_id) + _NUMBER.pack(partition)


def topic_prefix(topic_id: uuid.UUID) -> bytes:
    """The beginning of the keys of a topic's partitions."""
    return PARTITIONS + topic_id.bytes


def topic_of(key: Buffer) -> uuid.UUID:
    """The topic id in a `partition_key`."""
    return uuid.UUID(bytes=bytes(key[1:17]))


def discarded_key(number: int) -> bytes:
    """The key by which a table is marked as discarded."""
    return DISCARDED + _NUMBER.pack(number)


def number_key(number: int) -> bytes:
    """The beginning of the keys of a table's rows."""
    return _NUMBER.pack(number)


def number_of(key: Buffer) -> int:
    """The number at the end of a `discarded_key`, or in the value of NEXT_KEY."""
    number: int = _NUMBER.unpack(key[-NUMBER_BYTES:])[0]
    return number


def encode_table(number: int, position: TablePosition | None) -> bytes:
    """The record of a partition's table, without a position as long as the table is being restored."""
    packed: bytes = msgpack.packb([number, None if position is None else list(position)])
    return packed


def decode_table(value: bytes) -> tuple[int, TablePosition | None]:
    """Undoes `encode_table`."""
    number, position = msgpack.unpackb(value)
    return number, None if position is None else TablePosition(*position)


def expiry_row(number: int, expires_ms: int, key: bytes) -> bytes:
    """The key in `expiries` of a key that will expire."""
    return _NUMBER.pack(number) + expires_ms.to_bytes(EXPIRY_BYTES) + key


def expiry_of(row: Buffer) -> tuple[int, bytes]:
    """The expiry and the key of an `expiry_row`."""
    key_at = NUMBER_BYTES + EXPIRY_BYTES
    return int.from_bytes(row[NUMBER_BYTES:key_at]), bytes(row[key_at:])


def operation_row(number: int, writer: bytes, operation: int) -> bytes:
    """The key in `operations` of a client's operation."""
    return _OPERATION_KEY.pack(number, writer, operation)


def encode_done(answered_below: int, done: DoneOperation) -> bytes:
    """The value of an operation."""
    return _DONE.pack(done.base_offset, done.next_offset, done.timestamp_ms, answered_below, done.succeeded)


def decode_done(row: Buffer, value: bytes) -> tuple[OperationId, DoneOperation]:
    """Undoes `operation_row` and `encode_done`."""
    _, writer, number = _OPERATION_KEY.unpack(row)
    base_offset, next_offset, timestamp_ms, answered_below, succeeded = _DONE.unpack(value)
    operation = OperationId(writer, number, answered_below, bool(succeeded))
    return operation, DoneOperation(Offset(base_offset), Offset(next_offset), timestamp_ms, bool(succeeded), None)
