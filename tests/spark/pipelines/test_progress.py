"""The progress of a pipeline (`spark.pipelines.progress`)."""

from __future__ import annotations

import pytest

from gnomon.spark.pipelines.progress import WINDOW_SECONDS, BatchProgress, CommittedBatch, ProgressMeter
from gnomon.spark.tables.table import CommitVerdict

NOW_MS = 1_700_000_000_000


def batch(number: int, rows: int, dead: int = 0, newest_ms: int | None = NOW_MS) -> CommittedBatch:
    return CommittedBatch(number, CommitVerdict.COMMITTED, rows, 10 * rows, newest_ms, dead)


def test_the_report_of_a_batch_has_its_numbers() -> None:
    meter = ProgressMeter(100.0, 1_000)
    found = meter.after(batch(7, 400, dead=3), 100.0, 104.0, NOW_MS + 2_500, 597)
    assert found == BatchProgress(
        7, "committed", 400, 4_000, 3, 4.0, 100.0, 597, 2.5, pytest.approx(597 / 403 * 4, 0.1)
    )


def test_the_rate_is_that_of_the_last_minute() -> None:
    """Invariant 1."""
    meter = ProgressMeter(0.0, None)
    rates = []
    for number in range(30):
        rows = 1_000 if number < 10 else 100
        rates.append(meter.after(batch(number, rows), 10.0 * number, 10.0 * number + 10, NOW_MS, None).rows_per_second)
    assert rates[:10] == [100.0] * 10
    assert rates[10] == round((6 * 1_000 + 100) / 70, 1)
    assert rates[16:] == [10.0] * 14


def test_the_rate_after_an_idle_night_is_that_of_the_morning() -> None:
    """Invariant 1."""
    meter = ProgressMeter(0.0, 0)
    meter.after(batch(0, 10), 0.0, 1.0, NOW_MS, 0)
    assert meter.after(batch(1, 5_000), 30_000.0, 30_005.0, NOW_MS, 0).rows_per_second == 1_000.0


def test_a_batch_that_is_longer_than_the_window_has_its_own_rate() -> None:
    """Invariant 1."""
    meter = ProgressMeter(0.0, 9_000)
    seconds = 5 * WINDOW_SECONDS
    meter.after(batch(0, 3_000), 0.0, seconds, NOW_MS, 6_000)
    found = meter.after(batch(1, 6_000), seconds, 2 * seconds, NOW_MS, 3_000)
    assert (found.rows_per_second, found.seconds_to_go) == (20.0, seconds)


def test_a_query_that_makes_few_rows_of_many_records_has_the_time_to_go_of_the_records() -> None:
    """Invariant 2."""
    meter = ProgressMeter(0.0, 1_000_000)
    assert meter.after(batch(0, 2), 0.0, 10.0, NOW_MS, 900_000).seconds_to_go == 90.0
    assert meter.after(batch(1, 0), 10.0, 20.0, NOW_MS, 800_000).seconds_to_go == 80.0


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(100, 100, None), (100, 150, None), (None, 100, None), (100, None, None), (0, 0, 0.0)],
)
def test_the_time_to_go_is_unknown_while_the_lag_does_not_fall(
    before: int | None, after: int | None, expected: float | None
) -> None:
    """Invariant 2."""
    assert ProgressMeter(0.0, before).after(batch(0, 10), 0.0, 1.0, NOW_MS, after).seconds_to_go == expected


def test_the_lag_before_an_idle_time_does_not_count_for_the_time_to_go() -> None:
    """Invariant 2."""
    meter = ProgressMeter(0.0, 1_000)
    meter.after(batch(0, 500), 0.0, 1.0, NOW_MS, 500)
    assert meter.after(batch(1, 400), 5_000.0, 5_001.0, NOW_MS, 100).seconds_to_go is None


def test_a_lag_that_was_not_known_once_does_not_hide_the_time_to_go() -> None:
    """Invariant 2."""
    meter = ProgressMeter(0.0, 300)
    meter.after(batch(0, 100), 0.0, 1.0, NOW_MS, None)
    assert meter.after(batch(1, 100), 1.0, 2.0, NOW_MS, 100).seconds_to_go == 1.0


@pytest.mark.parametrize(("lag", "expected"), [(5, 4.0), (None, 4.0), (0, 0.0)])
def test_the_freshness_is_the_age_of_the_newest_record_while_others_are_left(lag: int | None, expected: float) -> None:
    """Invariant 3."""
    found = ProgressMeter(0.0, None).after(batch(0, 1, newest_ms=NOW_MS - 4_000), 0.0, 1.0, NOW_MS, lag)
    assert found.freshness_seconds == expected


def test_the_freshness_of_a_record_of_the_future_is_0_and_that_of_no_record_is_unknown() -> None:
    """Invariant 3."""
    meter = ProgressMeter(0.0, None)
    assert meter.after(batch(0, 1, newest_ms=NOW_MS + 1_000), 0.0, 1.0, NOW_MS, 5).freshness_seconds == 0.0
    assert meter.after(batch(1, 0, newest_ms=None), 1.0, 2.0, NOW_MS, 0).freshness_seconds is None


def test_a_batch_that_takes_no_time_has_no_rate() -> None:
    found = ProgressMeter(1.0, 20).after(batch(0, 10), 1.0, 1.0, NOW_MS, 10)
    assert (found.seconds, found.rows_per_second, found.seconds_to_go) == (0.0, 0.0, None)


LINE = BatchProgress(3, "committed", 1_200, 34_567, 0, 2.0, 600.4, 2_400, 1.24, 4.2)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (LINE, "batch 3: 1200 rows, 34.6 kB; 600 rows/s, lag 2400, 4.2 s to go, 1.2 s old"),
        (
            BatchProgress(4, "already", 0, 0, 1, 2.0, 0.0, None, None, None),
            "batch 4 already: 0 rows, 0 bytes, 1 error; 0 rows/s, lag unknown",
        ),
        (
            BatchProgress(5, "committed", 10, 999, 2, 2.0, 5.0, 0, 0.0, 0.0),
            "batch 5: 10 rows, 999 bytes, 2 errors; 5 rows/s, lag 0, 0.0 s old",
        ),
        (
            LINE._replace(bytes=567_890_123, seconds_to_go=119.0, freshness_seconds=7_199.0),
            "batch 3: 1200 rows, 568 MB; 600 rows/s, lag 2400, 119 s to go, 120 min old",
        ),
        (
            LINE._replace(bytes=4_567_890_123, seconds_to_go=180.0, freshness_seconds=9_000.0),
            "batch 3: 1200 rows, 4.6 GB; 600 rows/s, lag 2400, 3 min to go, 2.5 h old",
        ),
    ],
)
def test_the_line_has_the_numbers_that_are_known(progress: BatchProgress, text: str) -> None:
    assert progress.line() == text


def test_the_line_of_a_busy_pipeline_fits_a_terminal_up_to_the_time_to_go() -> None:
    busy = BatchProgress(4_321, "committed", 123_456, 45_678_901, 0, 2.0, 234_567.8, 12_345_678, 54.3, 5_400.0)
    assert ", 90 min to go" in busy.line()[:79]
