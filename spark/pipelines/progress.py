"""The progress of a pipeline: a report for each batch. Pure.

1. The window of a batch begins with the batch, or up to a minute earlier at the begin or end of another batch. The
   rate is that of the rows since then: a run that was idle for a night has the rate of the morning.
2. The time to go is the lag divided by the speed at which the lag fell within the window. It is unknown while the lag
   does not fall. Rows do not matter: a query may make one row of a million records.
3. The freshness of a table is the age of its newest record while records are left to read, and 0 otherwise.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gnomon.spark.tables.table import CommitVerdict

COMMITTED: Final = CommitVerdict.COMMITTED.name.lower()
ALREADY: Final = CommitVerdict.ALREADY.name.lower()
WINDOW_SECONDS: Final = 60.0
"""The longest time before a batch that counts for its rate; long enough for several batches of a trigger."""


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
    seconds: float
    """The duration of the batch."""
    rows_per_second: float
    """See invariant 1."""
    lag: int | None
    """The most records that are left to read; None if the brokers cannot be asked."""
    freshness_seconds: float | None
    """None if no row has a time."""
    seconds_to_go: float | None
    """See invariant 2; None if it is unknown."""

    def line(self) -> str:
        """The report in one line, which most often fits a terminal of 80 columns; the least needed is at its end."""
        already = "" if self.verdict == COMMITTED else f" {self.verdict}"
        errors = "" if not self.errors else ", 1 error" if self.errors == 1 else f", {self.errors} errors"
        lag = "unknown" if self.lag is None else str(self.lag)
        to_go = "" if not self.lag or self.seconds_to_go is None else f", {_duration(self.seconds_to_go)} to go"
        fresh = "" if self.freshness_seconds is None else f", {_duration(self.freshness_seconds)} old"
        return (
            f"batch {self.batch}{already}: {self.rows} rows, {_size(self.bytes)}{errors};"
            f" {self.rows_per_second:.0f} rows/s, lag {lag}{to_go}{fresh}"
        )


def _size(count: int) -> str:
    """Bytes with three digits or four."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1_000**power:
            size = count / 1_000**power
            return f"{size:.1f} {unit}" if size < 100 else f"{size:.0f} {unit}"
    return f"{count} bytes"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


class _Moment(NamedTuple):
    """The begin or the end of a batch."""

    time: float
    rows: int
    """Of the run until then."""
    lag: int | None


class ProgressMeter:
    """Counts the batches of one run.

    Args:
        now: the time at which it begins, in seconds of any clock.
        lag: the most records that are left to read then; None if it is unknown.
    """

    def __init__(self, now: float, lag: int | None) -> None:
        self._moments = [_Moment(now, 0, lag)]

    def after(self, batch: CommittedBatch, began: float, now: float, wall_ms: int, lag: int | None) -> BatchProgress:
        """The state after a batch.

        Args:
            began: the time at which the batch began, by the clock of the constructor.
            now: by the same clock.
            wall_ms: milliseconds since 1970.
            lag: see BatchProgress.
        """
        last = self._moments[-1]
        window = [each for each in self._moments if each.time >= began - WINDOW_SECONDS]
        if began > last.time:
            window.append(_Moment(began, last.rows, None))
        end = _Moment(now, last.rows + batch.rows, lag)
        self._moments = [*window, end]
        fresh = None if batch.newest_ms is None else max(wall_ms - batch.newest_ms, 0) / 1000 if lag != 0 else 0.0
        return BatchProgress(
            batch.number,
            batch.verdict.name.lower(),
            batch.rows,
            batch.bytes,
            batch.dead,
            round(now - began, 3),
            round(_speed(end.rows - window[0].rows, now - window[0].time), 1),
            lag,
            fresh,
            _seconds_to_go(window, end),
        )


def _seconds_to_go(window: list[_Moment], end: _Moment) -> float | None:
    """See invariant 2."""
    if not end.lag:
        return None if end.lag is None else 0.0
    first = next((each for each in window if each.lag is not None), None)
    if first is None or first.lag is None or first.lag <= end.lag or first.time >= end.time:
        return None
    return round(end.lag / _speed(first.lag - end.lag, end.time - first.time), 1)


def _speed(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
