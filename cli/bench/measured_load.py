"""The latencies of a load, and the row that shows them with the load's rate."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
ROW = ("phase", "records", "seconds", "records_per_second", "mb_per_second", *PERCENTILES)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of some ordered numbers that at least this share of them does not exceed (nearest rank)."""
    assert ordered, "nothing was measured"
    rank = -int(-share * len(ordered) // 1)  # rounded up
    return ordered[max(rank, 1) - 1]


class MeasuredLoad:
    """The records of one phase, and their latencies if it measures any."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.records = 0
        self.bytes = 0
        self.seconds = 0.0
        self.latencies = array("d")
        """In seconds."""

    def add(self, size_bytes: int, latency_seconds: float | None = None) -> None:
        """Counts a record."""
        self.records += 1
        self.bytes += size_bytes
        if latency_seconds is not None:
            self.latencies.append(latency_seconds)

    def row(self) -> dict[str, Any]:
        """The phase as `ROW` names its figures; None where there is none. A megabyte has 1,000,000 bytes."""
        ordered = sorted(self.latencies)
        timed = self.records > 0 and self.seconds > 0
        return {
            "phase": self.phase,
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records / self.seconds) if timed else None,
            "mb_per_second": round(self.bytes / self.seconds / 1e6, 2) if timed else None,
            **{
                name: round(percentile(ordered, share) * 1e3, 2) if ordered else None
                for name, share in PERCENTILES.items()
            },
        }
