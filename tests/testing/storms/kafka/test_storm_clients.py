"""The storm clients beside the producers accept correct answers and refuse wrong ones."""

from __future__ import annotations

import pytest

from gnomon.testing.storms.kafka.log_clients import ProduceRefused
from gnomon.testing.storms.kafka.storm_clients import OffsetsHistory, expect
from gnomon.wire.kafka.errors import ErrorCode


def _history() -> OffsetsHistory:
    history = OffsetsHistory()
    history.floor, history.highest = 5, 9
    return history


def test_a_committed_offset_may_be_seen_again_or_be_newer() -> None:
    history = _history()
    history.check(5, 5)
    history.check(7, 5)
    assert history.floor == 7


def test_a_committed_offset_never_goes_back() -> None:
    """Invariant 1, also for an offset that was only seen: a seen offset must be durable."""
    history = _history()
    history.doubtful.add(8)
    history.check(8, history.floor)
    with pytest.raises(ProduceRefused, match="went back to 5 after 8"):
        history.check(5, history.floor)


def test_an_offset_of_unknown_outcome_may_come_late() -> None:
    history = _history()
    history.doubtful.add(3)
    history.check(3, history.floor)
    assert history.floor == 5


def test_an_offset_that_nobody_committed_is_a_finding() -> None:
    with pytest.raises(ProduceRefused, match="none above 9 was ever committed"):
        _history().check(10, 5)


def test_an_error_is_a_finding_unless_it_is_retriable_or_expected() -> None:
    assert expect(0, "creation") is ErrorCode.NONE
    expected = ErrorCode.TOPIC_ALREADY_EXISTS
    assert expect(expected, "creation", expected) is expected
    with pytest.raises(ProduceRefused, match="creation: TOPIC_ALREADY_EXISTS"):
        expect(expected, "creation")
