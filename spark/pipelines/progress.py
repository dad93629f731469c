"""The progress of a pipeline: a report for each batch. Pure.

1. The rate is that of all records since the run began; the time to go is the lag at this rate.
2. The freshness of a table is the age of its newest record while records are left to read, and 0 otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

from gnomon.spark.tables.table import CommitVerdict


class CommittedBatch(NamedTuple):
    """One batch of a pipeline."""

    number: int
    verdict: CommitVerdict
    rows: int
    bytes: int
    """Of the files."""
    newest_ms: int | None
    """The newest time of a row, in milliseconds since 1970; None if no row has one."""
    dead: int


class BatchProgress(NamedTuple):
    """The state of a run after a batch."""

    batch: int
    verdict: str
    """`committed`, or `already` if another driver had committed it."""
    rows: int
    bytes: int
    """Of the files."""
    errors: int
    """Records that the format does not fit."""
    rows_per_second: float
    lag: int | None
    """The most records that are left to read; None if the brokers cannot be asked."""
    freshness_seconds: float | None
    """None if no row has a time."""
    seconds_to_go: float | None
    """None if nothing was read yet."""

    def line(self) -> str:
        """The report in one line."""
        fresh = "" if self.freshness_seconds is None else f", {self.freshness_seconds:.1f} s old"
        lag = "unknown" if self.lag is None else str(self.lag)
        to_go = "" if not self.lag or self.seconds_to_go is None else f", {self.seconds_to_go:.0f} s to go"
        errors = f", {self.errors} errors" if self.errors else ""
        return (
            f"batch {self.batch} {self.verdict}: {self.rows} rows, {self.bytes} bytes{errors};"
            f" {self.rows_per_second:.0f} rows/s, lag {lag}{fresh}{to_go}"
        )


class ProgressMeter:
    """Counts the batches of one run.

    Args:
        now: the time at which it begins, in seconds of any clock.
    """

    def __init__(self, now: float) -> None:
        self._began, self._records = now, 0

    def after(self, batch: CommittedBatch, now: float, wall_ms: int, lag: int | None) -> BatchProgress:
        """The state after a batch.

        Args:
            now: by the clock of the constructor.
            wall_ms: milliseconds since 1970.
            lag: see BatchProgress.
        """
        self._records += batch.rows + batch.dead
        seconds = now - self._began
        rate = self._records / seconds if seconds > 0 else 0.0
        fresh = None if batch.newest_ms is None else max(wall_ms - batch.newest_ms, 0) / 1000 if lag != 0 else 0.0
        return BatchProgress(
            batch.number,
            batch.verdict.name.lower(),
            batch.rows,
            batch.bytes,
            batch.dead,
            round(rate, 1),
            lag,
            fresh,
            round(lag / rate, 1) if rate and lag is not None else None,
        )
