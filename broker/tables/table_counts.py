"""Counts of the tables of one broker since its start, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TableCounts:
    """The counts of all tables together."""

    flushes: int = 0
    snapshots: int = 0
    snapshots_failed: int = 0
    batches_refused: int = 0
    """Batches of producers that no table takes."""
    comparisons_lost: int = 0
    """Transactions of which a comparison did not hold."""
