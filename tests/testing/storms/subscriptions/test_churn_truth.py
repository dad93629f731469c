from __future__ import annotations

import pytest

from gnomon.testing.storms.subscriptions.churn_truth import ChurnTruth


def truth_with(*offsets: int, alone: bool = True) -> ChurnTruth:
    """A subscription that got these records of partition 0."""
    truth = ChurnTruth(alone=alone)
    for offset in offsets:
        truth.got(0, offset, b"%d" % offset)
    return truth


def written(count: int) -> dict[int, dict[int, bytes]]:
    return {0: {offset: b"%d" % offset for offset in range(count)}}


def test_a_record_that_never_came_or_that_changed_is_found() -> None:
    """Invariants 1 and 5."""
    truth = truth_with(0, 2)
    assert truth.missing(written(3)) == "1 of 3 records of partition 0 never came: [1]"
    with pytest.raises(AssertionError, match="it was b'2'"):
        truth.got(0, 2, b"other")


def test_records_from_the_highest_of_several_places_on_come_again() -> None:
    """Invariant 2."""
    truth = truth_with(0, 1, 2, 3, alone=False)
    one, other = truth.seeks(0, 1), truth.seeks(0, 3)
    truth.sought(one)
    truth.sought(other)
    assert "did not come again: [3]" in truth.missing(written(4))
    truth.got(0, 3, b"3")
    assert truth.missing(written(4)) == ""


def test_a_record_before_all_places_that_comes_first_is_found() -> None:
    """Invariant 3."""
    for first, right in ((1, True), (2, True), (3, False)):
        truth = truth_with(0, 1, 2, 3)
        for seek in [truth.seeks(0, 1), truth.seeks(0, 2)]:
            truth.sought(seek)
        if right:
            truth.got(0, first, b"%d" % first)
        else:
            with pytest.raises(AssertionError, match="came first after seeks"):
                truth.got(0, first, b"%d" % first)


def test_a_failed_seek_owes_nothing_and_excuses_later_ones() -> None:
    """Invariant 2."""
    truth = truth_with(0, 1, 2, 3)
    truth.not_sought(truth.seeks(0, 2))
    assert truth.missing(written(4)) == ""
    truth.sought(truth.seeks(0, 0))
    assert "[2, 3]" in truth.missing(written(4))  # the failed seek may skip the records below 2
    truth.got(0, 3, b"3")


def test_after_a_deletion_every_record_comes_again() -> None:
    """Invariant 4."""
    truth = truth_with(0, 1)
    deletion = truth.deletes()
    truth.got(0, 0, b"0")
    truth.deleted(deletion)
    assert "did not come again: [1]" in truth.missing(written(2))
    truth.not_deleted(truth.deletes(), unknown=True)
    truth.got(0, 1, b"1")
    assert truth.missing(written(2)) == ""
