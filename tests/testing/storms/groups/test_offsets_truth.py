from __future__ import annotations

from gnomon.testing.storms.groups.offsets_truth import OffsetsTruth, Place
from gnomon.testing.storms.kafka.group_checker import NO_OFFSET, CommitOutcome

PLACE: Place = ("orders", 0)
DONE, REFUSED = CommitOutcome.DONE, CommitOutcome.REFUSED


def committed(truth: OffsetsTruth, offset: int, called: float, lasts_seconds: float | None = None) -> None:
    truth.commits(PLACE, offset, called, lasts_seconds).settle(DONE, called + 0.1)


def deleted(truth: OffsetsTruth, called: float) -> None:
    truth.deletes(None, called).settle(DONE, called + 0.1)


def test_an_offset_that_was_never_committed_or_was_refused_is_found() -> None:
    """Invariant 1."""
    truth = OffsetsTruth(4.0)
    truth.commits(PLACE, 5, 1.0).settle(REFUSED, 1.1)
    truth.fetched(PLACE, 5, 2.0, 2.1)
    truth.fetched(PLACE, 6, 2.0, 2.1)
    assert len(truth.wrong) == 2


def test_an_offset_from_before_a_later_commit_is_found() -> None:
    """Invariant 2."""
    truth = OffsetsTruth(4.0)
    committed(truth, 1, 1.0)
    committed(truth, 2, 2.0)
    truth.fetched(PLACE, 1, 2.05, 3.0)
    assert truth.wrong == []
    truth.fetched(PLACE, 1, 2.5, 3.0)
    assert "went back" in truth.wrong[0]


def test_an_offset_that_comes_back_after_a_deletion_is_found() -> None:
    """Invariant 3."""
    truth = OffsetsTruth(4.0)
    committed(truth, 1, 1.0)
    deleted(truth, 2.0)
    committed(truth, 2, 2.05)
    truth.fetched(PLACE, 2, 3.0, 3.1)
    assert truth.wrong == []
    truth.fetched(PLACE, 1, 2.0, 2.04)
    assert truth.wrong == []
    truth.fetched(PLACE, 1, 2.15, 3.1)
    assert "is shown" in truth.wrong[0]


def test_an_offset_that_comes_back_after_it_had_expired_is_found() -> None:
    """Invariant 3."""
    truth = OffsetsTruth(4.0, has_members=False)
    committed(truth, 1, 1.0)
    truth.fetched(PLACE, NO_OFFSET, 6.0, 6.1)
    truth.fetched(PLACE, 1, 7.0, 7.1)
    assert truth.gone == 1
    assert "is shown" in truth.wrong[0]


def test_a_missing_offset_needs_a_cause() -> None:
    """Invariant 4."""
    truth = OffsetsTruth(4.0, has_members=False)
    committed(truth, 1, 1.0)
    truth.fetched(PLACE, NO_OFFSET, 2.0, 2.1)
    assert "without a cause" in truth.wrong[0]
    truth = OffsetsTruth(4.0, has_members=False)
    committed(truth, 1, 1.0)
    truth.deletes(PLACE, 1.5)  # of unknown outcome
    truth.fetched(PLACE, NO_OFFSET, 2.0, 2.1)
    assert truth.wrong == []


def test_the_expiry_of_a_commit_that_overwrote_another_one_is_a_cause_for_both() -> None:
    """Invariant 4."""
    truth = OffsetsTruth(60.0, has_members=False)
    committed(truth, 1, 1.0)
    committed(truth, 2, 2.0, lasts_seconds=2.0)
    truth.fetched(PLACE, NO_OFFSET, 4.0, 4.1)
    assert truth.wrong == []


def test_an_offset_that_expires_while_the_group_has_members_is_found() -> None:
    """Invariant 5."""
    truth = OffsetsTruth(4.0)
    committed(truth, 1, 1.0)
    for second in range(7):
        truth.had_members(float(second), second + 0.1)
    truth.fetched(PLACE, NO_OFFSET, 7.0, 7.1)
    assert "without a cause" in truth.wrong[0]
    truth = OffsetsTruth(4.0)
    committed(truth, 1, 1.0)
    truth.had_members(2.0, 2.1)
    truth.had_members(6.0, 6.2)
    truth.fetched(PLACE, NO_OFFSET, 7.0, 7.1)
    assert truth.wrong == []


def test_an_offset_of_an_unread_topic_expires_while_the_group_has_members() -> None:
    """Invariant 5."""
    truth = OffsetsTruth(4.0, unread=frozenset(["orders"]))
    committed(truth, 1, 1.0)
    for second in range(7):
        truth.had_members(float(second), second + 0.1)
    truth.fetched(PLACE, NO_OFFSET, 5.0, 5.1)
    assert truth.wrong == []
