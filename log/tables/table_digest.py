"""The digest of a table at one revision: SHA-256 over keys, revisions and values in the order of the keys. Pure.

It is the same for both engines, for every leader and after every replay: the log decides it alone.
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
