"""The persisted form of the metadata: the keys and values of each LMDB database.

Format 2, every value msgpack, and sealed (`sealed`); in format 1 they were not:

| database | key | value |
|---|---|---|
| metadata-keys | the key in UTF-8 | [value, create_revision, mod_revision, version, lease or nil] |
| metadata-history | revision (8, big-endian) | [[key, nil or a value as above], ...] |
| metadata-meta | `format` | the number of the format |
| metadata-meta | `store` | [revision, compacted, next lease] |
| metadata-meta | `lease/` + lease (8, big-endian) | ttl in seconds |

1. Encoded records decode to equal records; bytes that are no such record raise `UnreadableRecord` and no other error.
2. The writes of a `Changes` turn the databases of the state before the change into those of the state after it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

import msgpack

from gnomon.metadata.client import Event, KeyValue, LeaseId, MetadataError, Revision, WatchBatch
from gnomon.metadata.draft import Changes
from gnomon.metadata.state import Snapshot

T = TypeVar("T")
Buffer: TypeAlias = bytes | memoryview
Write: TypeAlias = tuple[str, bytes, bytes | None]
"""Database, key, and the value to put, or None to delete the key."""

FORMAT = 2
FORMAT_1 = b"\x01"
"""The format record of a store of format 1."""

KEYS = "metadata-keys"
HISTORY = "metadata-history"
META = "metadata-meta"
DATABASES = (KEYS, HISTORY, META)

FORMAT_KEY = b"format"
STORE_KEY = b"store"
LEASE_PREFIX = b"lease/"

_POSITION = struct.Struct(">Q")


class UnreadableRecord(MetadataError):
    """The store contains bytes that no gnomon wrote."""


class NewerFormat(MetadataError):
    """The store was written by a newer gnomon."""

    def __init__(self, found: int) -> None:
        super().__init__(
            f"the metadata has format {found}, this gnomon knows up to {FORMAT}: "
            "a newer gnomon wrote it, use that one, or another data directory"
        )
        self.found = found


def check_format(data: Buffer) -> None:
    """Checks the value of `FORMAT_KEY`.

    Raises:
        NewerFormat: this gnomon is too old for it.
        UnreadableRecord: it is not a format number.
    """
    found = _decoded(FORMAT_KEY, data, _format)
    if found > FORMAT:
        raise NewerFormat(found)


def format_write() -> Write:
    """The write of the format number to a new store."""
    return META, FORMAT_KEY, msgpack.packb(FORMAT)


def store_write(revision: Revision, compacted: Revision, next_lease: LeaseId) -> Write:
    """The write of the store's own numbers."""
    return META, STORE_KEY, msgpack.packb([revision, compacted, next_lease])


def drop_writes(revisions: range) -> Iterator[Write]:
    """The removal of batches from the history."""
    return ((HISTORY, batch_key(Revision(revision)), None) for revision in revisions)


def writes(changes: Changes) -> list[Write]:
    """All writes of one commit; each key occurs once."""
    result: list[Write] = [store_write(changes.revision, changes.compacted, changes.next_lease)]
    result += [(KEYS, *encode_key_value(item)) for item in changes.puts]
    result += [(KEYS, key.encode(), None) for key in changes.deletes]
    result += [(HISTORY, batch_key(batch.revision), encode_batch(batch)) for batch in changes.batches]
    result += drop_writes(changes.dropped)
    result += [(META, _lease_key(lease), msgpack.packb(ttl)) for lease, ttl in changes.granted]
    result += [(META, _lease_key(lease), None) for lease in changes.ended]
    return result


def snapshot(
    keys: Iterable[tuple[Buffer, Buffer]],
    history: Iterable[tuple[Buffer, Buffer]],
    meta: Iterable[tuple[Buffer, Buffer]],
) -> Snapshot:
    """The state in the three databases.

    Args:
        keys, history, meta: key and value of each record, in key order; read only during the iteration.

    Raises:
        UnreadableRecord: a record is not of this format.
    """
    fresh = Snapshot()
    revision, compacted, next_lease = fresh.revision, fresh.compacted, fresh.next_lease
    leases: list[tuple[LeaseId, float]] = []
    for key, data in meta:
        name = bytes(key)
        if name == STORE_KEY:
            revision, compacted, next_lease = _decoded(name, data, _store)
        elif name.startswith(LEASE_PREFIX):
            leases.append((_lease_of(name), _decoded(name, data, _ttl)))
    return Snapshot(
        revision=revision,
        compacted=compacted,
        next_lease=next_lease,
        keys=[decode_key_value(key, data) for key, data in keys],
        batches=[decode_batch(key, data) for key, data in history],
        leases=leases,
    )


def encode_key_value(item: KeyValue) -> tuple[bytes, bytes]:
    """Key and value of one record of `KEYS`."""
    return item.key.encode(), msgpack.packb(_fields(item))


def decode_key_value(key: Buffer, data: Buffer) -> KeyValue:
    """Undoes `encode_key_value`.

    Raises:
        UnreadableRecord: it is not such a record.
    """
    try:
        return _key_value(str(key, "utf-8"), msgpack.unpackb(data))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _unreadable(key, error) from error


def encode_batch(batch: WatchBatch) -> bytes:
    """The value of one record of `HISTORY`; its key is the revision."""
    fields = [[event.key, None if event.current is None else _fields(event.current)] for event in batch.events]
    data: bytes = msgpack.packb(fields)
    return data


def batch_key(revision: Revision) -> bytes:
    """The key of one record of `HISTORY`."""
    return _POSITION.pack(revision)


def decode_batch(key: Buffer, data: Buffer) -> WatchBatch:
    """Undoes `batch_key` and `encode_batch`.

    Raises:
        UnreadableRecord: it is not such a record.
    """
    try:
        (revision,) = _POSITION.unpack(key)
        events = [
            Event(_of(str, name), None if fields is None else _key_value(name, fields))
            for name, fields in msgpack.unpackb(data)
        ]
    except (ValueError, TypeError, struct.error, msgpack.UnpackException) as error:
        raise _unreadable(key, error) from error
    return WatchBatch(Revision(revision), tuple(events))


def _fields(item: KeyValue) -> list[Any]:
    return [item.value, item.create_revision, item.mod_revision, item.version, item.lease]


def _key_value(key: str, fields: Any) -> KeyValue:
    lease: LeaseId | None
    value, created, modified, version, lease = fields
    # Written out for speed: opening a store of 100,000 keys runs this for each.
    if not (type(value) is bytes and type(created) is type(modified) is type(version) is int):
        raise TypeError("a field has the wrong type")
    if lease is not None and type(lease) is not int:
        raise TypeError("a lease is no number")
    return KeyValue(key, value, Revision(created), Revision(modified), version, lease)


def _lease_key(lease: LeaseId) -> bytes:
    return LEASE_PREFIX + _POSITION.pack(lease)


def _lease_of(name: bytes) -> LeaseId:
    try:
        return LeaseId(_POSITION.unpack(name[len(LEASE_PREFIX) :])[0])
    except struct.error as error:
        raise _unreadable(name, error) from error


def _format(fields: Any) -> int:
    return int(_of(int, fields))


def _ttl(fields: Any) -> float:
    return float(_of((int, float), fields))


def _store(fields: Any) -> tuple[Revision, Revision, LeaseId]:
    revision, compacted, next_lease = (_of(int, field) for field in fields)
    return Revision(revision), Revision(compacted), LeaseId(next_lease)


def _of(kind: type[T] | tuple[type, ...], field: Any) -> Any:
    if not isinstance(field, kind):
        raise TypeError(f"{type(field).__name__} where {kind} belongs")
    return field


def _decoded(key: Buffer, data: Buffer, read: Callable[[Any], T]) -> T:
    try:
        return read(msgpack.unpackb(data))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _unreadable(key, error) from error


def _unreadable(key: Buffer, error: Exception) -> UnreadableRecord:
    return UnreadableRecord(
        f"the metadata record under {bytes(key)!r} cannot be read ({error}): the store is damaged, restore a copy of it"
    )
