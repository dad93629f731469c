"""The digests of a table. Pure.

1. `TableDigest`, of one revision, is SHA-256 over keys, revisions and values in the order of the keys. It is the same
   for both engines, for every leader and after every replay: the log decides it alone.
2. `ContentDigest` is over keys and values alone, in any order: the same for two tables that have the same keys and
   values, whatever their revisions and their partitions are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from struct import Struct
from typing import Final

from gnomon.log.tables.key_entry import NUMBERS_BYTES, revision_of

_FORM: Final = Struct(">HqI")
"""The bytes of the key, the revision, and the bytes of the value; key and value follow."""


class TableDigest:
    """The digest of the entries so far."""

    def __init__(self) -> None:
        """No entry."""
        self._sha = hashlib.sha256()
        self.keys = 0
        self.bytes_used = 0
        """The bytes of keys and values."""

    def add(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """The next keys with their stored entries."""
        parts: list[bytes] = []
        for key, packed in entries:
            value_bytes = len(packed) - NUMBERS_BYTES
            parts += (_FORM.pack(len(key), revision_of(packed), value_bytes), key, packed[NUMBERS_BYTES:])
            self.keys += 1
            self.bytes_used += len(key) + value_bytes
        self._sha.update(b"".join(parts))

    def digest(self) -> bytes:
        """The 32 bytes of the digest."""
        return self._sha.digest()


_CONTENT: Final = Struct(">I")
"""The bytes of the key; key and value follow."""
_MODULUS: Final = 1 << 256


class ContentDigest:
    """The sum of the SHA-256 of all entries so far."""

    def __init__(self) -> None:
        """No entry."""
        self._sum = 0
        self.keys = 0

    def add(self, key: bytes, value: bytes) -> None:
        """One more key, which was not added before."""
        sha = hashlib.sha256(b"".join((_CONTENT.pack(len(key)), key, value)))
        self._sum = (self._sum + int.from_bytes(sha.digest(), "big")) % _MODULUS
        self.keys += 1

    def digest(self) -> bytes:
        """The 32 bytes of the digest."""
        return self._sum.to_bytes(32, "big")
