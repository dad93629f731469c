"""The checker of a consumer that seeks: each of its four rules is broken once."""

from __future__ import annotations

import pytest

from gnomon.testing.storms.subscriptions.seek_truth import SeekTruth


def read(*offsets: int) -> SeekTruth:
    truth = SeekTruth()
    for offset in offsets:
        truth.got(offset, b"%d" % offset)
    return truth


def test_a_consumer_that_goes_back_and_reads_all_passes() -> None:
    truth = read(0, 1, 2)
    truth.sought(1)
    for offset in (1, 2, 3):
        truth.got(offset, b"%d" % offset)
    truth.check_whole({offset: b"%d" % offset for offset in range(4)})


def test_another_record_than_the_requested_one_is_found() -> None:
    truth = read(0, 1, 2)
    truth.sought(1)
    with pytest.raises(AssertionError, match="after seek 1, to offset 1, 2 came"):
        truth.got(2, b"2")


def test_a_record_that_is_skipped_is_found() -> None:
    with pytest.raises(AssertionError, match="offset 3 came, and the one before it never did"):
        read(0, 1, 3)


def test_the_first_missing_record_is_the_one_after_the_last_that_came_without_a_gap() -> None:
    truth = read(0, 1)
    truth.shares()
    for offset in (3, 4):
        truth.got(offset, b"%d" % offset)
    assert truth.first_missing == 2
    truth.got(2, b"2")
    assert truth.first_missing == 5


def test_records_that_may_be_held_for_an_earlier_consumer_are_not_skipped_until_the_next_seek() -> None:
    truth = read(0, 1)
    truth.shares()
    truth.got(5, b"5")
    truth.sought(1)
    truth.got(1, b"1")
    with pytest.raises(AssertionError, match="offset 4 came"):
        truth.got(4, b"4")


def test_a_record_that_changes_is_found() -> None:
    truth = read(0, 1)
    with pytest.raises(AssertionError, match="offset 1"):
        truth.got(1, b"another")


def test_a_record_that_never_comes_is_found() -> None:
    with pytest.raises(AssertionError, match="1 of 3 records never came"):
        read(0, 1).check_whole({0: b"0", 1: b"1", 2: b"2"})
