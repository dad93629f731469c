"""Sealed records: digests by which the metadata store detects damage of its own file.

A stored value is the digest of its record (8 bytes), then the value. The record `digest` has the sum of the digests of
all other records.

1. A record whose key or value differs from what was written raises `DamagedRecord`, with the key as it is found.
2. A store that lacks a record, or has one that was not written, raises `DamagedStore`: the sum differs.
3. A write changes the sum by the digest of the record that it replaces, as the file has it, and by that of the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from gnomon.metadata.client import MetadataError
from gnomon.metadata.records import META, Buffer, Write

DIGEST_BYTES = 8
SUM_KEY = b"digest"
ADVICE = "restore a copy of the data directory, or of the metadata alone (docs/operating.md, What to back up)"

_SUMS = 1 << (8 * DIGEST_BYTES)


class DamagedRecord(MetadataError):
    """A record of the store is not what was written."""

    def __init__(self, database: str, key: Buffer) -> None:
        super().__init__(f"the metadata record {bytes(key)!r} (in {database}) is damaged: {ADVICE}")


class DamagedStore(MetadataError):
    """The records of the store are not all those that were written."""


def seal(database: str, key: bytes, data: bytes) -> bytes:
    """The stored form of a value."""
    return _digest(database, key, data) + data


def unseal(database: str, key: Buffer, stored: Buffer) -> Buffer:
    """Undoes `seal`.

    Raises:
        DamagedRecord: the record is not what was written.
    """
    data = stored[DIGEST_BYTES:]
    if _digest(database, key, data) != stored[:DIGEST_BYTES]:
        raise DamagedRecord(database, key)
    return data


def _digest(database: str, key: Buffer, data: Buffer) -> bytes:
    found = blake2b(b"%s %d " % (database.encode(), len(key)), digest_size=DIGEST_BYTES)
    found.update(key)
    found.update(data)
    return found.digest()


def write_all(transaction: Any, databases: Mapping[str, Any], writes: Iterable[Write]) -> None:
    """Writes records, and the sum that they lead to."""
    meta = databases[META]
    total = int.from_bytes((transaction.get(SUM_KEY, db=meta) or b"")[DIGEST_BYTES:])
    for name, key, data in writes:
        before = transaction.get(key, db=databases[name])
        total -= 0 if before is None else _number(before)
        if data is None:
            transaction.delete(key, db=databases[name])
        else:
            stored = seal(name, key, data)
            total += _number(stored)
            transaction.put(key, stored, db=databases[name])
    transaction.put(SUM_KEY, seal(META, SUM_KEY, (total % _SUMS).to_bytes(DIGEST_BYTES)), db=meta)


def _number(stored: Buffer) -> int:
    """The digest of a stored record."""
    return int.from_bytes(stored[:DIGEST_BYTES])


class Unsealing:
    """The records of a whole store, checked while they are read."""

    def __init__(self) -> None:
        self._total = 0
        self._count = 0
        self._written: int | None = None

    def records(self, database: str, stored: Iterable[tuple[Buffer, Buffer]]) -> Iterator[tuple[Buffer, Buffer]]:
        """The records of one database with their values.

        Raises:
            DamagedRecord: one of them is damaged.
        """
        for key, value in stored:
            data = unseal(database, key, value)
            if database == META and key == SUM_KEY:
                self._written = int.from_bytes(data)
                continue
            self._total += _number(value)
            self._count += 1
            yield key, data

    def check(self) -> None:
        """Checks the sum, after all records were read.

        Raises:
            DamagedStore: it differs from the one that was written.
        """
        if self._written != self._total % _SUMS:
            raise DamagedStore(
                f"the {self._count} records of the metadata are not all that were written, or not only those: {ADVICE}"
            )
