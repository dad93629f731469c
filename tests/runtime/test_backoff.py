from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.runtime.backoff import Backoff


def test_pauses_double_from_the_minimum_to_the_maximum() -> None:
    backoff = Backoff(0.05, 1.0)
    pauses = [backoff.seconds(failures) for failures in range(1, 8)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]  # invariant 1


def test_pauses_grow_by_a_given_factor() -> None:
    assert [Backoff(1.0, 20.0, 3.0).seconds(failures) for failures in range(1, 5)] == [1.0, 3.0, 9.0, 20.0]


@given(st.floats(1e-3, 1e3), st.floats(1, 1e6), st.floats(1.1, 10), st.integers(0, 10**9), st.integers(0, 10**9))
def test_pauses_stay_within_bounds_and_never_shrink_with_more_failures(
    seconds_min: float, ratio: float, factor: float, few: int, more: int
) -> None:
    backoff = Backoff(seconds_min, seconds_min * ratio, factor)
    first, second = backoff.seconds(few), backoff.seconds(few + more)  # invariant 2
    assert backoff.seconds_min <= first <= second <= backoff.seconds_max


@pytest.mark.parametrize("wrong", [(0.0, 1.0, 2.0), (2.0, 1.0, 2.0), (1.0, 2.0, 1.0)])
def test_a_backoff_that_does_not_grow_is_a_bug(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(AssertionError):
        Backoff(*wrong)
