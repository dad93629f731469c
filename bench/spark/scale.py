"""The amounts of a run with Spark: rows, rounds, and the length of the loads that have no end of their own."""

from __future__ import annotations

from dataclasses import dataclass

SMALL_BYTES, LARGE_BYTES = 100, 1 << 10
"""Sizes of values."""
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class SparkScale:
    """The usual amounts."""

    rows: int = 1_000_000
    rounds: int = 5
    warm_ups: int = 2
    """Rounds before the first one that counts: the first queries of a JVM take several times as long."""
    seconds: float = 15.0
    """Length of a stream, and of a measurement beside a job."""

    @property
    def large_rows(self) -> int:
        """Rows with values of LARGE_BYTES: a topic of them takes three copies on the disk."""
        return max(1, self.rows // 4)
