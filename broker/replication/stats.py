"""The statistics of one replicator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicationStats:
    """The replication to one partition of a shadow, as the source's broker knows it; rates are of the last seconds."""

    connected: bool
    """Whether the shadow's broker receives."""
    backlog_entries: int
    """Entries that are not acknowledged yet."""
    backlog_bytes: int
    backlog_seconds: float
    """Time since the oldest of these was confirmed."""
    entries_per_second: float
    records_per_second: float
    bytes_per_second: float
    last_segment: int | None
    """The base offset of the segment of the last acknowledged entry; None if there is none."""
    last_entry: int | None
    told_entries: int
    """Entries that were acknowledged to this broker."""
    resets: int
    """The number of times that entries were skipped because too many waited."""
    refused: int
    """The number of times that the shadow refused entries."""
