"""How one shadow and partition is told of its source, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicationStats:
    """As the source's broker knows it; rates are of the last seconds."""

    connected: bool
    """Whether the shadow's broker listens."""
    backlog_entries: int
    """Not told, or told and not heard yet."""
    backlog_bytes: int
    backlog_seconds: float
    """How long ago the oldest of these was confirmed."""
    entries_per_second: float
    records_per_second: float
    bytes_per_second: float
    last_segment: int | None
    """The base offset of the segment of the last entry that was heard, None before any was."""
    last_entry: int | None
    told_entries: int
    """Heard by this broker's replicator."""
    resets: int
    """How often entries were skipped because too many waited."""
    refused: int
    """How often the shadow's broker refused what it was told."""
