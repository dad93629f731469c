"""What protects entries beyond the CRC32C that every stored value has: a MAC keyed from the ledger's password. Pure.

The CRC32C finds bits that flipped. A MAC finds what somebody wrote on purpose who can write to a bookie's disk but does
not know the password: it stands before the payload and covers ledger, entry and payload (BLAKE2b, 16 bytes).
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
"""What is derived from a password at once; empty for the empty password."""

MAC_BYTES: Final = 16
_POSITION: Final = struct.Struct(">QQ")


def secret_of(password: bytes) -> Secret:
    """The secret that a password stands for."""
    return Secret(hashlib.sha512(password).digest() if password else b"")


def password_digest(name: str, secret: Secret) -> bytes:
    """What a ledger's record keeps of its password; nothing for the empty one."""
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
        """The payload of what `seal` made.

        Raises:
            DigestMismatch: nobody who knows the password wrote this there.
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
