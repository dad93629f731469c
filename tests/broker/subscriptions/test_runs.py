"""Runs of offsets: kept apart, added and removed."""

from __future__ import annotations

from gnomon.broker.subscriptions.runs import Runs


def test_runs_are_kept_apart_and_removal_returns_the_runs_removed() -> None:
    runs = Runs()
    for first, end in ((0, 5), (10, 15), (20, 25), (5, 6), (24, 30)):
        runs.add(first, end)
    assert list(runs) == [(0, 6), (10, 15), (20, 30)]
    assert runs.remove(3, 22) == [(3, 6), (10, 15), (20, 22)]
    assert list(runs) == [(0, 3), (22, 30)]
    assert runs.remove(3, 22) == []
    assert runs.remove(25, 23) == []
    assert list(runs) == [(0, 3), (22, 30)]
    assert runs.count() == 11
    assert runs.first == 0
