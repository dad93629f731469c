"""What a replicator still has to tell; and a machine that loses connections and owners."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gnomon.bookie.ids import EntryId, Session
from gnomon.broker.partition.entry import Offset
from gnomon.broker.shadow.outbox import RUNS_MAX, Cursor, Outbox, Run


def run(first: int, last: int, segment: int = 0, session: int = 1, since: float = 0.0) -> Run:
    """Entries of two records and ten bytes each."""
    offset = segment + 2 * first
    end = segment + 2 * (last + 1)
    return Run(
        Offset(segment),
        Session(session),
        EntryId(first),
        EntryId(last),
        Offset(offset),
        Offset(end),
        10 * (last + 1 - first),
        since,
    )


def started(limit: int = 0) -> Outbox:
    outbox = Outbox(limit)
    outbox.start(None, [])
    return outbox


def test_ids_that_follow_each_other_are_one_run_and_those_of_another_session_or_segment_another() -> None:
    outbox = started()
    for entry in range(5):
        outbox.confirmed(run(entry, entry, since=float(entry)))
    outbox.confirmed(run(5, 6, session=2, since=7.0))
    outbox.confirmed(run(0, 0, segment=14))
    assert outbox.backlog() == (8, 80, 0.0)
    assert outbox.take(1) == (run(0, 4), run(5, 6, session=2, since=7.0), run(0, 0, segment=14))
    assert not outbox.unsent
    assert outbox.backlog() == (8, 80, 0.0), "nothing of it was heard"
    outbox.heard(1)
    assert outbox.backlog() == (0, 0, None)
    assert outbox.cursor == (14, 1)
    assert (outbox.heard_entries, outbox.heard_records, outbox.heard_bytes) == (8, 16, 80)


def test_what_was_lost_is_told_again_before_what_came_since() -> None:
    outbox = started()
    outbox.confirmed(run(0, 3))
    outbox.take(1)
    outbox.confirmed(run(4, 5))
    outbox.take(2)
    outbox.confirmed(run(6, 6))
    outbox.heard(1)
    outbox.lost()
    assert outbox.take(3) == (run(4, 6),)
    outbox.heard(2)
    assert outbox.cursor == (0, 4)


def test_a_start_leaves_out_what_the_cursor_is_behind_of_and_without_one_all_but_the_last_entry() -> None:
    outbox = Outbox()
    outbox.start(Cursor(Offset(20), EntryId(3)), [run(0, 9), run(0, 9, segment=20), run(0, 1, segment=40)])
    assert outbox.take(1) == (run(3, 9, segment=20), run(0, 1, segment=40))
    outbox = Outbox()
    outbox.start(None, [run(0, 9), run(0, 9, segment=20)])
    assert outbox.take(1) == (run(9, 9, segment=20),)
    outbox.heard(1)
    outbox.start(Cursor(Offset(0), EntryId(4)), [run(0, 9), run(0, 12, segment=20, session=2)])
    assert outbox.take(2) == (run(10, 12, segment=20, session=2),), "what was heard counts, not an older cursor"


def test_a_backlog_beyond_the_limit_is_left_out_but_for_the_last_entry() -> None:
    outbox = started(10)
    outbox.confirmed(run(0, 9))
    assert (outbox.resets, outbox.backlog()[0]) == (0, 10)
    outbox.confirmed(run(10, 11))
    assert (outbox.resets, outbox.take(1)) == (1, (run(11, 11),))
    outbox.confirmed(run(12, 20))
    outbox.lost()
    assert (outbox.resets, outbox.take(2)) == (1, (run(11, 20),))
    outbox.confirmed(run(21, 22))
    outbox.lost()
    assert (outbox.resets, outbox.take(3)) == (2, (run(22, 22),))


def test_no_more_than_some_runs_are_kept() -> None:
    outbox = started()
    for segment in range(0, 2 * (RUNS_MAX + 10), 2):
        outbox.confirmed(run(0, 0, segment=segment))
    taken = outbox.take(1)
    assert len(taken) == RUNS_MAX
    assert taken[-1].segment == 2 * (RUNS_MAX + 9)


class ToldShadow(RuleBasedStateMachine):
    """A source that writes, rolls and changes its owner, and a shadow that is told by connections that are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Run] = []
        """One of one entry each."""
        self.outbox = started()
        self.segment, self.session, self.entry = 0, 1, 0
        self.frame = 0
        self.on_their_way: list[tuple[int, tuple[Run, ...]]] = []
        self.answers: list[int] = []
        self.heard: list[tuple[int, int]] = []
        self.stored: Cursor | None = None

    @rule(count=st.integers(1, 4))
    def write(self, count: int) -> None:
        for _ in range(count):
            one = run(self.entry, self.entry, self.segment, self.session)
            self.written.append(one)
            self.outbox.confirmed(one)
            self.entry += 1

    @precondition(lambda self: self.entry and len({one.segment for one in self.written}) < RUNS_MAX // 2)
    @rule()
    def roll(self) -> None:
        self.segment, self.entry = self.segment + 2 * self.entry, 0

    @precondition(lambda self: self.outbox.unsent)
    @rule()
    def tell(self) -> None:
        self.frame += 1
        self.on_their_way.append((self.frame, self.outbox.take(self.frame)))

    @precondition(lambda self: self.on_their_way)
    @rule(answered=st.booleans())
    def arrive(self, answered: bool) -> None:
        frame, runs = self.on_their_way.pop(0)
        for one in runs:
            self.heard += [(one.segment, entry) for entry in range(one.first, one.last + 1)]
        if answered:
            self.answers.append(frame)

    @precondition(lambda self: self.answers)
    @rule()
    def answer(self) -> None:
        self.outbox.heard(self.answers.pop(0))

    @rule()
    def lose_connection(self) -> None:
        self.on_their_way.clear()
        self.answers.clear()
        self.outbox.lost()

    @rule()
    def store(self) -> None:
        self.stored = self.outbox.cursor

    @rule()
    def another_owner(self) -> None:
        """With the same last segment under a new session, and all records as they are now.

        Without a stored cursor it begins at the end, where it was before or not.
        """
        self.session += 1
        if self.stored is None:
            self.heard.clear()
        self.on_their_way.clear()
        self.answers.clear()
        self.outbox = Outbox()
        runs: list[Run] = []
        for one in self.written:
            told = one._replace(session=Session(self.session if one.segment == self.segment else 1))
            joined = runs[-1].then(told) if runs else None
            runs[-1:] = [*runs[-1:], told] if joined is None else [joined]
        self.outbox.start(self.stored, runs)

    @invariant()
    def the_cursor_is_behind_what_was_heard_and_at_nothing_that_was_not(self) -> None:
        cursor = self.outbox.cursor
        if cursor is not None:
            assert (cursor.segment, cursor.entry - 1) in self.heard
            assert self.stored is None or cursor >= self.stored

    def teardown(self) -> None:
        self.lose_connection()
        if self.outbox.unsent:
            self.tell()
            self.arrive(answered=True)
            self.answer()
        if self.heard:
            last, first = self.written[-1], min(self.heard)
            assert self.heard[-1] == (last.segment, last.last)
            expected = [(one.segment, one.last) for one in self.written if (one.segment, one.last) >= first]
            assert sorted(set(self.heard)) == expected, "something was left out"
        assert self.heard or not self.written
        assert self.outbox.backlog()[0] == 0


def test_a_shadow_is_told_everything_in_order_whatever_is_lost() -> None:
    run_state_machine_as_test(ToldShadow, settings=settings(max_examples=200, stateful_step_count=40, deadline=None))
