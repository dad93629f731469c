"""The plan of a read: in which entries of which ledgers the records of a range of offsets are stored. Pure.

1. A plan names confirmed entries only: none of them changes, moves to another entry id, or disappears, except by
   deletion. Copies may move to other bookies; the ledger's newer record names these.
2. The segments of a partition are in the order of their offsets, and cover each record of the range once.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.record import LedgerRecord
from gnomon.log.entry import Offset


class PlannedSegment(NamedTuple):
    """A run of entries of one ledger."""

    base_offset: Offset
    """The first offset of the segment, which is below the first offset of the run where the range begins within it."""
    ledger: LedgerId
    record: LedgerRecord
    first: EntryId
    last: EntryId
    """The last entry of the run; it is confirmed."""
    next_offset: Offset
    """The offset after the last record of the entry `last`."""
    size_bytes: int
    """The payload of the entries of the run."""


class PlannedPartition(NamedTuple):
    """One partition as its leader sees it, and the part of the range that it has."""

    start_offset: Offset
    high_watermark: Offset
    segments: tuple[PlannedSegment, ...]


class PlannedBookie(NamedTuple):
    """A bookie that a record of the plan names."""

    name: BookieId
    host: str
    port: int
    disk: int
    """The create revision of its cookie: another disk under the same name has another one."""


class ReadPlan(NamedTuple):
    """The answer of one leader: some partitions of a topic, by number."""

    topic_id: UUID
    cluster: str
    """The id of the cluster, which bookies ask for."""
    partitions: dict[int, PlannedPartition]
    bookies: tuple[PlannedBookie, ...]
    """None of a standalone node, whose entries no other process can read."""
