from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.cli.bench.measured_load import ROW, MeasuredLoad, percentile


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.001, 1))
def test_a_percentile_is_the_smallest_number_that_enough_of_them_do_not_exceed(
    numbers: list[float], share: float
) -> None:
    ordered = sorted(numbers)
    found = percentile(ordered, share)
    assert sum(number <= found for number in ordered) >= share * len(ordered)
    assert sum(number < found for number in ordered) < share * len(ordered)


def test_a_row_has_rates_and_latencies_in_milliseconds() -> None:
    load = MeasuredLoad("produce")
    for number in range(1, 1001):
        load.add(100, number / 1000)
    load.seconds = 2.0
    assert load.row() == {
        "phase": "produce",
        "records": 1000,
        "seconds": 2.0,
        "records_per_second": 500,
        "mb_per_second": 0.05,
        "p50_ms": 500.0,
        "p95_ms": 950.0,
        "p99_ms": 990.0,
        "p999_ms": 999.0,
        "max_ms": 1000.0,
    }


@pytest.mark.parametrize("records", [0, 5])
def test_figures_that_were_not_measured_are_absent(records: int) -> None:
    load = MeasuredLoad("consume")
    for _ in range(records):
        load.add(1)
    row = load.row()
    assert tuple(row) == ROW
    assert all(row[name] is None for name in ROW[3:])
