"""The metadata keys that name the bookies of a cluster, and the registration that a bookie writes under one of them.

`bookies/<name>` holds the address of a live bookie, under the bookie's lease. `cookies/<name>` exists as long as the
bookie is a member of the cluster. `bookies-draining/<name>` exists from the request that the bookie leave the cluster
until it has left. `bookies-dismissed/<name>` then names the disk that was dismissed. `ages/<name>` has the age of the
member's store, `bookies-older/<name>` the reason while that store is an older copy that is not repaired yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgpack

from gnomon.metadata.client import Revision

BOOKIES: Final = "bookies/"
DRAINING: Final = "bookies-draining/"
"""Prefix of the keys that name bookies which are to leave: they get no new entries, and the auditor empties them."""
COOKIES: Final = "cookies/"
"""Prefix of the keys that name the members of the cluster; each holds the cookie of the member's disk."""
DISMISSED: Final = "bookies-dismissed/"
"""Prefix of the keys that name bookies which have left; each holds the revision of the disk (`cookie`) in decimal."""
AGES: Final = "ages/"
"""Prefix of the keys that hold the ages of the members' stores (`age`)."""
OLDER: Final = "bookies-older/"
"""Prefix of the keys that name bookies whose store is, or was, an older copy of itself (`older_store`)."""
REPAIRED: Final = b""
"""The value of such a key once the auditor has repaired the store."""


@dataclass(frozen=True, slots=True)
class BookieRegistration:
    """The address and state of a bookie, written by itself."""

    host: str
    port: int
    disk: Revision
    """Identifies the disk among all that have had this name (`cookie.DiskMembership`)."""
    domain: str = ""
    """Rack or zone, for placement."""
    read_only: bool = False
    """The bookie takes no entries at the moment."""

    def encode(self) -> bytes:
        """The value of its key."""
        encoded: bytes = msgpack.packb([self.host, self.port, self.domain, self.read_only, self.disk])
        return encoded

    @classmethod
    def decode(cls, value: bytes) -> BookieRegistration:
        """Undoes `encode`.

        Raises:
            ValueError: the value is no registration, or one of a newer version.
        """
        said = msgpack.unpackb(value)
        if not isinstance(said, list):
            raise ValueError(f"a registration that is none: {said!r}")
        host, port, domain, read_only, disk = said
        return cls(host, port, disk, domain, read_only)
