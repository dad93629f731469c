"""The part of a bookie's RPC protocol that client and server share: service name, errors, sizes of calls."""

from __future__ import annotations

from typing import Final

from gnomon.bookie.errors import (
    BookieLeaving,
    DigestMismatch,
    EntryAltered,
    EntryShrunk,
    EntryUnknown,
    Fenced,
    InvalidCall,
    NoSuchEntry,
    SessionUnknown,
)
from gnomon.bookie.ids import BookieId
from gnomon.metadata.client import Revision
from gnomon.runtime.rpc.errors import ErrorTable
from gnomon.runtime.world import DiskFailed, DiskFull
from gnomon.wire.rpc import HeadLimit, HeadLimits

ADDS_MAX: Final = 256
"""The most entries in one call."""
COPIES_MAX: Final = 4096
"""The most copies in one call."""
HEADS: Final = HeadLimits(
    {"put_copies": HeadLimit(items_max=4 * COPIES_MAX), "begin_session": HeadLimit(items_max=25_000)}
)
"""A copy takes three items, and so does a fragment of a ledger."""
ERRORS: Final = ErrorTable(
    {
        Fenced: ("ledger", "session", "promised"),
        BookieLeaving: (),
        NoSuchEntry: ("ledger", "entry"),
        EntryUnknown: ("ledger", "entry", "why"),
        EntryShrunk: ("ledger", "entry", "start_entry"),
        EntryAltered: ("ledger", "entry"),
        DigestMismatch: ("ledger", "entry"),
        InvalidCall: (),
        SessionUnknown: (),
        DiskFull: (),
        DiskFailed: (),
    }
)


def service_of(name: BookieId, disk: Revision) -> str:
    """The service name of a bookie: a client that asks for another bookie, or for an earlier disk, is refused."""
    return f"bookie {name}, disk {disk}"
