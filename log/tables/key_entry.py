"""The entry of one key in a table: its newest value, and the numbers that belong to it. Pure.

1. The revision is the offset of the record that wrote the value. The create revision is that of the first record since
   the key was absent, and the version counts the records since then, from 1 on.
2. A key without a value has version 0. Its entry is kept only until the deletion is durable (`broker/tables`).
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

NEVER: Final = -1
"""The expiry of an entry that does not expire."""
EXPIRY_MS_MAX: Final = (1 << 56) - 1
"""The latest expiry, as the store of tables has seven bytes for it; some two million years from now."""
NO_REVISION: Final = -1
"""The revision of a key that has no value."""
KEY_BYTES_MAX: Final = 500
"""The largest key; a B-tree page of LMDB holds one of 511 bytes."""
_NUMBERS: Final = Struct(">qqqq")
NUMBERS_BYTES: Final = _NUMBERS.size
"""The bytes of a stored entry before its value."""
_REVISION: Final = Struct(">q")
_VERSION_AT: Final = slice(16, 24)
_NO_VERSION: Final = bytes(8)
_EXPIRY_AT: Final = slice(24, 32)
_NEVER: Final = Struct(">q").pack(NEVER)


class KeyEntry(NamedTuple):
    """The newest value of one key."""

    value: bytes
    revision: int
    create_revision: int
    version: int
    expires_ms: int = NEVER
    """The wall-clock milliseconds from which on the leader deletes the key."""

    def is_over(self, now_ms: int) -> bool:
        """Whether the time to live is over."""
        return self.expires_ms != NEVER and self.expires_ms <= now_ms


ABSENT: Final = KeyEntry(b"", NO_REVISION, NO_REVISION, 0)


def pack_entry(value: bytes, revision: int, create_revision: int, version: int, expires_ms: int) -> bytes:
    """The stored form of an entry: four numbers and the value. It is also the form in answers to clients."""
    return _NUMBERS.pack(revision, create_revision, version, expires_ms) + value


def unpack_entry(packed: bytes) -> KeyEntry:
    """Undoes `pack_entry`.

    Raises:
        ValueError: it is no entry.
    """
    try:
        revision, create_revision, version, expires_ms = _NUMBERS.unpack_from(packed)
    except error:
        raise ValueError(f"a stored entry has at least {_NUMBERS.size} bytes, not {len(packed)}") from None
    return KeyEntry(packed[_NUMBERS.size :], revision, create_revision, version, expires_ms)


def numbers_of(packed: bytes) -> tuple[int, int, int, int]:
    """Revision, create revision, version and expiry of a stored entry, without a copy of its value."""
    revision, create_revision, version, expires_ms = _NUMBERS.unpack_from(packed)
    return revision, create_revision, version, expires_ms


def has_value(packed: bytes) -> bool:
    """Whether a stored entry is that of a key that has a value."""
    return packed[_VERSION_AT] != _NO_VERSION


def expires(packed: bytes) -> bool:
    """Whether a stored entry has an expiry."""
    return packed[_EXPIRY_AT] != _NEVER


def revision_of(packed: bytes) -> int:
    """The revision of a stored entry."""
    revision: int = _REVISION.unpack_from(packed)[0]
    return revision
