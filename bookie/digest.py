"""The optional MAC of a ledger's entries, keyed from the ledger's password, in addition to their CRC32C. Pure.

The CRC32C detects flipped bits. The MAC detects entries written on purpose by somebody who can write to a bookie's disk
but does not know the password. The MAC precedes the payload and covers ledger, entry id and payload (BLAKE2b, 16
bytes).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import Final, NewType

from gnomon.bookie.entry import Buffer
from gnomon.bookie.errors import DigestMismatch
from gnomon.bookie.ids import EntryId, LedgerId

Secret = NewType("Secret", bytes)
"""The secret derived from a password; empty for the empty password."""

MAC_BYTES: Final = 16
_POSITION: Final = struct.Struct(">QQ")


def secret_of(password: bytes) -> Secret:
    """The secret of a password."""
    return Secret(hashlib.sha512(password).digest() if password else b"")


def password_digest(name: str, secret: Secret) -> bytes:
    """The digest of a password in a ledger's record; empty for the empty one."""
    return hashlib.blake2b(name.encode(), key=secret, digest_size=32).digest() if secret else b""


class Mac:
    """Seals and opens the entries of one ledger."""

    def __init__(self, ledger: LedgerId, secret: Secret) -> None:
        assert secret, "a MAC needs a password"
        self._ledger = ledger
        self._key = hashlib.blake2b(b"entries", key=secret, digest_size=32).digest()

    def seal(self, entry: EntryId, payload: Sequence[Buffer]) -> list[Buffer]:
        """The payload with its MAC before it."""
        return [self._mac(entry, payload), *payload]

    def open(self, entry: EntryId, sealed: memoryview) -> memoryview:
        """The payload of an entry that `seal` made.

        Raises:
            DigestMismatch: it was not sealed with this password for this entry.
        """
        payload = sealed[MAC_BYTES:]
        if not hmac.compare_digest(bytes(sealed[:MAC_BYTES]), self._mac(entry, (payload,))):
            raise DigestMismatch(self._ledger, entry)
        return payload

    def _mac(self, entry: EntryId, payload: Sequence[Buffer]) -> bytes:
        mac = hashlib.blake2b(_POSITION.pack(self._ledger, entry), key=self._key, digest_size=MAC_BYTES)
        for chunk in payload:
            mac.update(chunk)
        return mac.digest()
