"""Compares the copies of one entry. Pure.

1. Copies are equal if the digests (BLAKE2b) of their stored values are, which hold session, last add confirmed, length
   and payload.
2. If copies differ, those of the largest group are the entry, and each other copy is a fault. Without a largest group
   every copy is a fault, and the first one counts as the entry.
3. An entry has no sound copy only if each bookie that answered has a fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.ids import BookieId, EntryId

DIGEST_BYTES: Final = 16


class CopyFaultKind(StrEnum):
    """The reason why a bookie has no copy that counts."""

    MISSING = "missing"
    DAMAGED = "damaged"
    DIFFERENT = "different"
    UNKNOWN = "unknown"
    """The bookie does not say whether it has the copy, or cannot read it."""


class CopyFault(NamedTuple):
    """The reason, and the words of the bookie if it gave any."""

    kind: CopyFaultKind
    detail: str = ""


ABSENT: Final = CopyFault(CopyFaultKind.MISSING)
"""An explicit negative answer."""
Copy: TypeAlias = StoredEntry | CopyFault
EntryCopies: TypeAlias = tuple[EntryId, Sequence[tuple[BookieId, Copy]]]
"""An entry, and the copies or faults at those bookies of its write set that answered."""


class ComparedEntry(NamedTuple):
    """An entry after the comparison of its copies."""

    entry: EntryId
    payload: memoryview | None
    """Of the copy that counts as the entry; None if no copy is sound."""
    asked: Sequence[BookieId]
    """The bookies that answered."""
    faults: Mapping[BookieId, CopyFault]


def compare_copies(entry: EntryId, copies: Sequence[tuple[BookieId, Copy]]) -> ComparedEntry:
    """Compares the copies of one entry."""
    asked = [bookie for bookie, _ in copies]
    faults: dict[BookieId, CopyFault] = {}
    groups: dict[bytes, list[tuple[BookieId, StoredEntry]]] = {}
    for bookie, copy in copies:
        if isinstance(copy, CopyFault):
            faults[bookie] = copy
        else:
            digest = hashlib.blake2b(copy.value, digest_size=DIGEST_BYTES).digest()
            groups.setdefault(digest, []).append((bookie, copy))
    if not groups:
        return ComparedEntry(entry, None, asked, faults)
    ranked = sorted(groups.values(), key=len, reverse=True)
    if len(ranked) > 1:
        tie = len(ranked[0]) == len(ranked[1])
        for group in ranked if tie else ranked[1:]:
            faults.update((bookie, _different(copy)) for bookie, copy in group)
    return ComparedEntry(entry, ranked[0][0][1].payload, asked, faults)


def _different(copy: StoredEntry) -> CopyFault:
    return CopyFault(
        CopyFaultKind.DIFFERENT,
        f"this copy has {len(copy.payload)} bytes and was written in session {copy.session}; its digest matches",
    )
