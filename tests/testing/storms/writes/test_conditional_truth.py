"""The judge of conditional writers finds each violation of its rules (numbers: invariants of `conditional_truth`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gnomon.testing.storms.writes.conditional_truth import ConditionalTruth

LOG = [(0, b"a"), (1, b"b"), (2, b"c")]


def right() -> ConditionalTruth:
    """A history that its log confirms."""
    truth = ConditionalTruth()
    truth.attempt(b"a", -1, 1.0).written(0, 2.0)
    truth.attempt(b"lost", -1, 1.0).refused(0, 2.1)
    truth.attempt(b"b", 0, 3.0).written(1, 4.0)
    truth.attempt(b"c", None, 5.0)
    truth.attempt(b"never", 7, 5.0)
    truth.ended(-1, 0.5, 1.5)
    truth.ended(1, 4.5, 6.0)
    truth.ended(2, 5.5, 6.0)
    return truth


def test_a_right_history_is_accepted() -> None:
    right().check(LOG)


def test_a_writer_that_expects_less_may_be_refused_by_an_older_end() -> None:  # 3
    truth = right()
    truth.attempt(b"x", -1, 4.5).refused(0, 4.6)
    truth.check(LOG)


WRONG: list[tuple[Callable[[ConditionalTruth], object], str]] = [
    (lambda truth: truth.attempt(b"x", None, 6.0).written(3, 7.0), "was acknowledged at 3 and is at None"),  # 1
    (lambda truth: truth.attempts[b"c"].written(1, 7.0), "was acknowledged at 1 and is at 2"),  # 1
    (lambda truth: truth.attempts[b"c"].refused(1, 7.0), "was refused and is at offset 2"),  # 1
    (lambda truth: truth.attempts.pop(b"c"), "nobody wrote"),  # 1
    (lambda truth: setattr(truth.attempts[b"c"], "expected", 0), "is at offset 2 and expected 0"),  # 2
    (lambda truth: truth.attempt(b"x", 1, 6.0).refused(1, 7.0), "was refused by what it expected"),  # 3
    (lambda truth: truth.attempt(b"x", 0, 4.5).refused(-1, 7.0), "1 was acknowledged before the call"),  # 3
    (lambda truth: truth.attempt(b"x", 0, 4.5).refused(2, 4.6), "names 2, which was not there"),  # 3
    (lambda truth: truth.attempt(b"x", 0, 6.0).refused(9, 7.0), "names 9, which was not there"),  # 3
    (lambda truth: truth.ended(0, 4.5, 5.0), "1 was acknowledged before the call"),  # 3
    (lambda truth: truth.ended(2, 3.5, 4.5), "names 2, which was not there"),  # 3
]


@pytest.mark.parametrize(("change", "text"), WRONG)
def test_a_wrong_history_is_found(change: Callable[[ConditionalTruth], object], text: str) -> None:
    truth = right()
    change(truth)
    with pytest.raises(AssertionError, match=text):
        truth.check(LOG)


@pytest.mark.parametrize("log", [[*LOG, (3, b"a")], [(0, b"a"), (2, b"c")], [(1, b"a")]])
def test_a_log_with_a_gap_or_a_double_is_found(log: list[tuple[int, bytes]]) -> None:  # 1
    with pytest.raises(AssertionError, match=r"gaps|twice"):
        right().check(log)


@pytest.mark.parametrize(("called", "is_wrong"), [(3.0, True), (1.5, False)])
def test_a_write_with_an_old_token_after_a_new_one_was_confirmed_is_found(called: float, is_wrong: bool) -> None:  # 4
    truth = ConditionalTruth()
    truth.fenced(b"old", 0.0, 0.5)
    truth.fenced(b"new", 1.0, 2.0)
    truth.attempt(b"a", None, called, b"old").written(0, 4.0)
    if is_wrong:
        with pytest.raises(AssertionError, match="was written after b'new' was confirmed"):
            truth.check([(0, b"a")])
    else:
        truth.check([(0, b"a")])


@pytest.mark.parametrize(
    ("token", "called", "is_wrong"), [(b"new", 3.0, False), (b"odd", 3.0, True), (b"", 3.0, True), (b"", 0.4, False)]
)
def test_a_refusal_for_a_token_that_the_partition_cannot_have_is_found(  # 4
    token: bytes, called: float, is_wrong: bool
) -> None:
    truth = ConditionalTruth()
    for name, time in ((b"old", 0.0), (b"new", 1.0)):
        truth.fences_with(name, time)
    truth.fenced(b"old", 0.0, 0.5)
    truth.attempt(b"a", None, called, b"old").refused(None, 4.0, token)
    if is_wrong:
        with pytest.raises(AssertionError, match="was refused for"):
            truth.check([])
    else:
        truth.check([])
