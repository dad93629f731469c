"""The forms of a snapshot of a table: its entries in a sealed ledger, and the metadata record that names it. Pure.

| entry of the ledger | content |
|---|---|
| `E`, then msgpack | [key, stored entry, key, stored entry, ...], in the order of the keys |
| `O`, then msgpack | [[client, number, answered below, base offset, next offset, time, succeeded], ...] |

1. A snapshot is the state at one revision: what the records up to it have left, and nothing of later ones.
2. The record names the ledger only after it is sealed. It has the number of the keys and the digest of the entries
   (`table_digest`), which the reader compares.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgpack

from gnomon.log.entry import Offset
from gnomon.log.tables.key_entry import NUMBERS_BYTES

TABLES: Final = "tables/"
"""Prefix of the names of all snapshots' ledgers, and of the metadata keys of their records."""
FORMAT: Final = 1
ENTRIES: Final = b"E"
OPERATIONS: Final = b"O"
_OPERATION: Final = [bytes, int, int, int, int, int, bool]
_RECORD: Final = ([str, int, bytes, int, int, bytes, int], [str, int, type(None), int, int, bytes, int])


class SnapshotDamaged(Exception):
    """A snapshot is not what was written; the text says what differs."""


class SnapshotRecord(NamedTuple):
    """The newest snapshot of a partition's table."""

    ledger: str
    revision: int
    """The last revision that it has."""
    identity: bytes | None
    """The identity of the batch with that revision (`table_log`)."""
    keys: int
    bytes_used: int
    """The bytes of keys and values."""
    digest: bytes
    created_ms: int

    @property
    def end(self) -> Offset:
        """The offset after the last record that it has."""
        return Offset(self.revision + 1)

    def encode(self) -> bytes:
        """The value of the metadata record."""
        packed: bytes = msgpack.packb([FORMAT, *self])
        return packed

    @classmethod
    def decode(cls, value: bytes) -> SnapshotRecord:
        """Undoes `encode`.

        Raises:
            SnapshotDamaged: it is no record, or one of another format.
        """
        try:
            found, *fields = msgpack.unpackb(value)
        except (ValueError, TypeError) as error:
            raise SnapshotDamaged(f"the record of a snapshot cannot be decoded: {error}") from None
        if found != FORMAT:
            raise SnapshotDamaged(f"the snapshot has format {found!r}, this gnomon reads {FORMAT}: upgrade gnomon")
        if list(map(type, fields)) not in _RECORD:
            raise SnapshotDamaged("the record of a snapshot has another form")
        return cls(*fields)


def snapshots_prefix(topic_id: uuid.UUID) -> str:
    """The prefix of the names of a topic's snapshots, and of the keys of their records."""
    return f"{TABLES}{topic_id.hex}/"


def record_key(topic_id: uuid.UUID, partition: int) -> str:
    """The metadata key of the newest snapshot of a partition."""
    return f"{snapshots_prefix(topic_id)}{partition}"


def ledger_name(topic_id: uuid.UUID, partition: int, revision: int) -> str:
    """The name of the ledger with the snapshot at a revision."""
    return f"{record_key(topic_id, partition)}/{revision}"


def encode_entries(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A part of a snapshot's entries."""
    return ENTRIES + bytes(msgpack.packb([each for entry in entries for each in entry]))


def encode_operations(operations: Sequence[Sequence[Any]]) -> bytes:
    """A part of the numbered operations that were done before."""
    return OPERATIONS + bytes(msgpack.packb([list(operation) for operation in operations]))


def decode_part(payload: bytes) -> tuple[list[tuple[bytes, bytes]], list[list[Any]]]:
    """The entries and the operations of one entry of the ledger.

    Raises:
        SnapshotDamaged: it is no part of a snapshot.
    """
    kind = payload[:1]
    try:
        content = msgpack.unpackb(payload[1:])
    except ValueError as error:
        raise SnapshotDamaged(f"a part of the snapshot cannot be decoded: {error}") from None
    if kind == ENTRIES:
        return _entries(content), []
    if kind == OPERATIONS:
        return [], _operations(content)
    raise SnapshotDamaged(f"a part of the snapshot has the unknown kind {kind!r}")


def _entries(content: Any) -> list[tuple[bytes, bytes]]:
    if type(content) is not list or len(content) % 2:
        raise SnapshotDamaged("a part of the snapshot has no pairs of keys and entries")
    entries = list(zip(content[::2], content[1::2], strict=True))
    for key, packed in entries:
        if type(key) is not bytes or type(packed) is not bytes or len(packed) < NUMBERS_BYTES:
            raise SnapshotDamaged(f"a part of the snapshot has the key {key!r:.60} without an entry")
    return entries


def _operations(content: Any) -> list[list[Any]]:
    if type(content) is not list or not all(
        type(each) is list and list(map(type, each)) == _OPERATION for each in content
    ):
        raise SnapshotDamaged("a part of the snapshot has no list of operations")
    return content
