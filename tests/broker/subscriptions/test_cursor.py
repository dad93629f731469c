from __future__ import annotations

import sys
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.log.entry import Offset

END = 40
offsets = st.integers(0, END).map(Offset)


class CursorMachine(RuleBasedStateMachine):
    """A cursor against the set of acknowledged offsets as its model."""

    @initialize(start=offsets)
    def begin(self, start: Offset) -> None:
        self.cursor = Cursor(start)
        self.acked = set(range(start))

    @rule(first=offsets, count=st.integers(0, 6))
    def ack(self, first: Offset, count: int) -> None:
        run = set(range(first, first + count))
        assert self.cursor.ack(first, Offset(first + count)) == (not run <= self.acked)
        self.acked |= run

    @rule(end=offsets)
    def ack_up_to(self, end: Offset) -> None:
        assert self.cursor.ack_up_to(end) == (not set(range(end)) <= self.acked)
        self.acked |= set(range(end))

    @rule(start=offsets)
    def trimmed(self, start: Offset) -> None:
        assert self.cursor.trimmed(start) == (not set(range(start)) <= self.acked)
        self.acked |= set(range(start))

    @rule(offset=offsets)
    def seek(self, offset: Offset) -> None:
        self.cursor.seek(offset)
        self.acked = set(range(offset))

    @rule(ranges_max=st.integers(0, 4))
    def is_stored_and_made_again(self, ranges_max: int) -> None:
        ranges = list(self.cursor.first_ranges(ranges_max))
        assert ranges == self.cursor.ranges[:ranges_max]
        before = set(self.acked)
        self.cursor = Cursor(self.cursor.mark_delete, reversed(ranges))
        self.acked = set(range(self.cursor.mark_delete)).union(*(range(first, end) for first, end in ranges))
        assert self.acked <= before, "invariant 4: a record would be skipped"

    @rule(first=offsets, count=st.integers(0, END))
    def what_is_left_of_a_run(self, first: Offset, count: int) -> None:
        runs = list(self.cursor.unacked_in(first, first + count))
        left = [offset for offset in range(first, first + count) if offset not in self.acked]
        assert [offset for run in runs for offset in range(*run)] == left
        assert all(before < after for (_, before), (after, _) in pairwise(runs)), "two runs are one"
        assert self.cursor.acked_to == max(self.acked, default=-1) + 1

    @precondition(lambda self: self.cursor.mark_delete > 0)
    @rule(end=st.integers(1, END).map(Offset))
    def ranges_below_the_mark_say_nothing(self, end: Offset) -> None:
        mark = self.cursor.mark_delete
        again = Cursor(mark, [(Offset(0), min(end, mark)), *self.cursor.ranges])
        assert (again.mark_delete, again.ranges) == (mark, self.cursor.ranges)

    @invariant()
    def it_knows_what_is_acknowledged(self) -> None:
        for offset in map(Offset, range(END + 8)):
            assert self.cursor.acked(offset) == (offset in self.acked)
            following = next(at for at in range(offset, END + 60) if at not in self.acked)
            assert self.cursor.next_unacked(offset) == following

    @invariant()
    def its_ranges_are_in_order_and_apart(self) -> None:
        assert self.cursor.mark_delete not in self.acked
        ends = [self.cursor.mark_delete]
        for first, end in self.cursor.ranges:
            assert ends[-1] < first < end
            ends.append(end)


CursorMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
test_a_cursor_is_the_set_of_what_was_acknowledged = CursorMachine.TestCase


def test_a_cursor_without_ranges_is_small() -> None:
    cursor = Cursor(Offset(1))
    cursor.ack(Offset(5), Offset(6))
    cursor.ack_up_to(Offset(9))
    assert sys.getsizeof(cursor) <= 64
    assert cursor.first_ranges(10) == ()
    assert cursor.ranges == []
    assert not hasattr(cursor, "__dict__")
