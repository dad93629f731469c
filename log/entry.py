"""The payload of a partition's ledger entry: a fixed header and, for a batch, the record batch byte for byte.

1. An entry covers the offsets [base_offset, next_offset), and the next entry of the log begins at next_offset. The
   header of a batch covers the same offsets as its entry; the batch may hold fewer records, or none.
2. `leader_epoch`, `next_offset`, `last_stable_offset`, `transaction_id` and, inside one segment, `max_timestamp` never
   fall from one entry to the next, so each can be searched by bisection over entries.
3. Replaying the entries from an entry's `replay_from` up to the entry itself, starting from nothing, gives the producer
   states after it. A snapshot entry (kind PRODUCERS) replaces the states that were replayed before it.
4. A snapshot entry covers no offsets.
5. A reader reads the kinds in `KINDS_READ` of the versions in `VERSIONS_READ`, and stops with `UnknownEntry` at any
   other entry. `check_form` decides that for every reader; `unpack_entry` calls it.
6. The header has the transaction id, and with it version 2, from the first entry on that a transaction id was given
   with or before. So a log without transaction ids has headers of version 1 alone, which older versions of gnomon read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple, NewType

from gnomon.bookie.errors import LedgerError

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)

NO_OFFSET = Offset(-1)
NO_TIMESTAMP = -1
NO_ABORT = -1
NO_TRANSACTION = -1
"""The transaction id of a log that no writer gave one to."""

VERSION: Final = 1
"""The version of a header without a transaction id."""
TRANSACTION_VERSION: Final = 2
"""The version of a header with a transaction id, which is its last field."""
VERSIONS_READ: Final = frozenset({VERSION, TRANSACTION_VERSION})


class EntryKind(IntEnum):
    """The meaning of the bytes after the header."""

    BATCH = 1
    """One record batch, base offset and leader epoch patched."""
    PRODUCERS = 2
    """A snapshot of the producer states (`producers.encode_snapshot`)."""
    MARKER = 3
    """Reserved for the end of a transaction: a commit or an abort. Not written and not read by this gnomon."""
    CLEANED = 4
    """Reserved for a batch that compaction has rewritten. Not written and not read by this gnomon."""


KINDS_READ: Final = frozenset({EntryKind.BATCH, EntryKind.PRODUCERS})


class UnknownEntry(LedgerError):
    """An entry of a version or a kind that this gnomon does not read; a reader stops there and never skips it."""

    def __init__(self, problem: str, name: str = "an entry") -> None:
        super().__init__(f"{name} {problem}", "upgrade gnomon to the version that wrote it")
        self.problem = problem

    def at(self, entry: int, ledger: str) -> UnknownEntry:
        """The same error, with the place of the entry in its text."""
        return UnknownEntry(self.problem, f"entry {entry} of ledger {ledger!r}")


class EntryHeader(NamedTuple):
    """The header, without its version; timestamps in milliseconds since 1970."""

    kind: int
    leader_epoch: LeaderEpoch
    base_offset: Offset
    next_offset: Offset
    last_stable_offset: Offset
    """The end of the log for a reader of committed records, after this entry; this gnomon writes the next offset."""
    max_timestamp: int
    """The largest record timestamp of this segment so far, -1 where there is none."""
    replay_from: int
    """Entry id in the same ledger where replaying the producer states begins."""
    last_abort: int
    """The newest abort marker of the same ledger up to this entry, -1 for none; this gnomon always writes -1."""
    transaction_id: int = NO_TRANSACTION
    """The last transaction id that a writer of the partition gave, up to this entry; -1 for none."""


_HEADER = struct.Struct(">BBiqqqqqq")
HEADER_BYTES = _HEADER.size
"""The size of a header of version 1."""
_TRANSACTION_HEADER = struct.Struct(">BBiqqqqqqq")
TRANSACTION_HEADER_BYTES = _TRANSACTION_HEADER.size
"""The size of a header of version 2."""

pack_header = partial(_HEADER.pack, VERSION)
"""The header of version 1, from the fields of an `EntryHeader` except for the transaction id."""
pack_transaction_header = partial(_TRANSACTION_HEADER.pack, TRANSACTION_VERSION)
"""The header of version 2, from all fields of an `EntryHeader`."""


unpack_reach = struct.Struct(">H12xq").unpack_from
"""`unpack_reach(payload) -> (form, next_offset)`: the part of the header that a sequential reader needs.

The form is version and kind in one number, so that the reader looks one number up per entry: see `BATCH_AT`.
"""

BATCH_AT: Final[Mapping[int, int]] = {
    VERSION << 8 | EntryKind.BATCH: HEADER_BYTES,
    TRANSACTION_VERSION << 8 | EntryKind.BATCH: TRANSACTION_HEADER_BYTES,
}
"""Where the batch begins in the payload of an entry of kind BATCH, by its form."""


def check_form(form: int) -> None:
    """Decides whether this gnomon reads an entry whose header begins with `form`.

    Raises:
        UnknownEntry: it does not read entries of this version, or of this kind.
    """
    version, kind = form >> 8, form & 0xFF
    if version not in VERSIONS_READ:
        raise UnknownEntry(f"has a header of version {version}, this gnomon reads versions 1 and 2")
    if kind not in KINDS_READ:
        name = f"{kind} ({EntryKind(kind).name})" if kind in set(EntryKind) else str(kind)
        raise UnknownEntry(f"is of kind {name}, which this gnomon does not read")


def unpack_entry(payload: memoryview) -> tuple[EntryHeader, memoryview]:
    """The header of an entry's payload, and the bytes after it.

    Raises:
        UnknownEntry: it is no entry of a partition, or one that this gnomon does not read.
    """
    if len(payload) < HEADER_BYTES:
        raise UnknownEntry(f"has {len(payload)} bytes, the header of a partition's entry has {HEADER_BYTES}")
    version, kind = payload[0], payload[1]
    check_form(version << 8 | kind)
    if version == VERSION:
        return EntryHeader(*_HEADER.unpack_from(payload)[1:]), payload[HEADER_BYTES:]
    if len(payload) < TRANSACTION_HEADER_BYTES:
        raise UnknownEntry(f"has {len(payload)} bytes, a header of version 2 has {TRANSACTION_HEADER_BYTES}")
    return EntryHeader(*_TRANSACTION_HEADER.unpack_from(payload)[1:]), payload[TRANSACTION_HEADER_BYTES:]


def unpack_header(payload: memoryview) -> EntryHeader:
    """The header alone; see `unpack_entry`."""
    return unpack_entry(payload)[0]
