"""Budgets of topics that clients create by asking for them (numbers: invariants of `creation_budget`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.topics.creation_budget import CreationBudget

STEPS = st.lists(st.sampled_from([0.0, 0.0, 0.01, 0.1, 1.0, 60.0]), max_size=200)


@given(st.integers(1, 20), st.integers(1, 20), STEPS)
def test_between_any_two_times_a_budget_grants_its_burst_and_its_rate(
    burst: int, per_second: int, steps: list[float]
) -> None:
    """1."""
    budget, now, granted = CreationBudget(burst, per_second, 0.0), 0.0, list[float]()
    for step in steps:
        now += step
        if CreationBudget.take(now, budget):
            granted.append(now)
    for first in range(len(granted)):
        for last in range(first, len(granted)):
            most = burst + (granted[last] - granted[first]) * per_second
            assert last - first + 1 <= most + 1e-6


def test_a_topic_that_one_budget_refuses_takes_nothing_from_the_others() -> None:
    """2."""
    empty, other = CreationBudget(1, 1, 0.0), CreationBudget(3, 1, 0.0)
    assert CreationBudget.take(0.0, empty, other)
    for _ in range(10):
        assert not CreationBudget.take(0.0, empty, other)
        assert not CreationBudget.take(0.0, other, empty)
    assert [CreationBudget.take(0.0, other) for _ in range(3)] == [True, True, False]


def test_a_used_up_budget_grants_its_rate() -> None:
    """1."""
    budget = CreationBudget(2, 10, 5.0)
    assert [CreationBudget.take(5.0, budget) for _ in range(3)] == [True, True, False]
    assert [CreationBudget.take(5.0 + tenth / 10 + 0.001, budget) for tenth in range(1, 20)] == [True] * 19
    assert [CreationBudget.take(60.0, budget) for _ in range(3)] == [True, True, False]
