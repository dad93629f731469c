"""The stored form of an entry: a fixed header, then the payload byte for byte. Pure.

1. The CRC32C covers ledger, entry id, session, last add confirmed (LAC), length and payload. So decoding a value under
   the wrong key, or with one changed bit, raises an error and never returns data.
2. Encoding copies the payload once; decoding copies nothing.
3. `length_bytes` counts the payload bytes of the ledger up to and including this entry, so that the last entry alone
   gives the size of the ledger.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from gnomon.bookie.errors import DigestMismatch
from gnomon.bookie.ids import EntryId, LedgerId, SessionId

Buffer: TypeAlias = bytes | bytearray | memoryview

_HEADER: Final = struct.Struct(">QqQI")
_SESSION: Final = struct.Struct(">Q")
_COVERED: Final = struct.Struct(">QQQqQ")
HEADER_BYTES: Final = _HEADER.size


class StoredEntry(NamedTuple):
    """A decoded value; `payload` is a slice of `value`, which is the whole stored value."""

    session: SessionId
    last_add_confirmed: EntryId
    length_bytes: int
    payload: memoryview
    value: memoryview

    def copy(self) -> StoredEntry:
        """A copy in memory of its own."""
        value = memoryview(bytes(self.value))
        return self._replace(value=value, payload=value[HEADER_BYTES:])


def encode_entry(
    ledger: LedgerId,
    entry: EntryId,
    session: SessionId,
    last_add_confirmed: EntryId,
    length_bytes: int,
    payload: Sequence[Buffer],
) -> bytes:
    """The value to store for an entry whose payload is the concatenation of the chunks in `payload`."""
    crc = crc32c(_COVERED.pack(ledger, entry, session, last_add_confirmed, length_bytes))
    for chunk in payload:
        crc = crc32c(chunk, crc)
    return b"".join((_HEADER.pack(session, last_add_confirmed, length_bytes, crc), *payload))


def decode_entry(ledger: LedgerId, entry: EntryId, value: memoryview) -> StoredEntry:
    """Verifies and splits a stored value.

    Raises:
        DigestMismatch: the value is not what was stored under this ledger and entry.
    """
    return StoredEntry(*verify_entry(ledger, entry, value), value)


def session_of(value: Buffer) -> SessionId:
    """The session that wrote a stored value; its digest is not checked."""
    return SessionId(_SESSION.unpack_from(value)[0])


def verify_entry(ledger: LedgerId, entry: EntryId, value: memoryview) -> tuple[SessionId, EntryId, int, memoryview]:
    """The fields of `decode_entry` as a plain tuple, for the hot reading path; raises the same errors."""
    if len(value) < HEADER_BYTES:
        raise DigestMismatch(ledger, entry)
    session, last_add_confirmed, length_bytes, crc = _HEADER.unpack_from(value)
    payload = value[HEADER_BYTES:]
    if crc32c(payload, crc32c(_COVERED.pack(ledger, entry, session, last_add_confirmed, length_bytes))) != crc:
        raise DigestMismatch(ledger, entry)
    return session, last_add_confirmed, length_bytes, payload
