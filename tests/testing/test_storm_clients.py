"""The judges beside a storm's producers: what they accept, and what they do not."""

from __future__ import annotations

import pytest

from gnomon.testing.log_clients import Refused
from gnomon.testing.storm_clients import OffsetsHistory, expect
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
    """Invariant 1, also for one that was only seen: what was seen had to be durable."""
    history = _history()
    history.doubtful.add(8)
    history.check(8, history.floor)
    with pytest.raises(Refused, match="went back to 5 after 8"):
        history.check(5, history.floor)


def test_an_offset_of_unknown_outcome_may_come_late() -> None:
    history = _history()
    history.doubtful.add(3)
    history.check(3, history.floor)
    assert history.floor == 5


def test_an_offset_that_nobody_committed_is_a_finding() -> None:
    with pytest.raises(Refused, match="none above 9 was ever committed"):
        _history().check(10, 5)


def test_an_error_is_a_finding_unless_it_is_retriable_or_expected() -> None:
    assert expect(0, "creation") is ErrorCode.NONE
    expected = ErrorCode.TOPIC_ALREADY_EXISTS
    assert expect(expected, "creation", expected) is expected
    with pytest.raises(Refused, match="creation: TOPIC_ALREADY_EXISTS"):
        expect(expected, "creation")
