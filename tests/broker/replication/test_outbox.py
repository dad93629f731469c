"""The outbox of a replicator; and a machine that loses connections and owners."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gnomon.bookie.ids import EntryId, SessionId
from gnomon.broker.replication.outbox import RUNS_MAX, EntryRun, Outbox, ReplicatorCursor
from gnomon.log.entry import Offset


def run(first: int, last: int, segment: int = 0, session: int = 1, since: float = 0.0) -> EntryRun:
    """A run of entries of two records and ten bytes each."""
    offset = segment + 2 * first
    end = segment + 2 * (last + 1)
    return EntryRun(
        Offset(segment),
        SessionId(session),
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


def test_adjacent_ids_of_one_segment_and_session_are_one_run() -> None:
    outbox = started()
    for entry in range(5):
        outbox.confirmed(run(entry, entry, since=float(entry)))
    outbox.confirmed(run(5, 6, session=2, since=7.0))
    outbox.confirmed(run(0, 0, segment=14))
    assert outbox.backlog() == (8, 80, 0.0)
    assert outbox.take(1) == (run(0, 4), run(5, 6, session=2, since=7.0), run(0, 0, segment=14))
    assert not outbox.unsent
    assert outbox.backlog() == (8, 80, 0.0), "nothing of it is acknowledged"
    outbox.acked(1)
    assert outbox.backlog() == (0, 0, None)
    assert outbox.cursor == (14, 1)
    assert (outbox.acked_entries, outbox.acked_records, outbox.acked_bytes) == (8, 16, 80)


def test_unacknowledged_ids_of_a_lost_connection_are_sent_again_before_later_ones() -> None:
    outbox = started()
    outbox.confirmed(run(0, 3))
    outbox.take(1)
    outbox.confirmed(run(4, 5))
    outbox.take(2)
    outbox.confirmed(run(6, 6))
    outbox.acked(1)
    outbox.lost()
    assert outbox.take(3) == (run(4, 6),)
    outbox.acked(2)
    assert outbox.cursor == (0, 4)


def test_a_start_skips_ids_before_the_cursor_and_without_a_cursor_all_except_the_last() -> None:
    outbox = Outbox()
    outbox.start(ReplicatorCursor(Offset(20), EntryId(3)), [run(0, 9), run(0, 9, segment=20), run(0, 1, segment=40)])
    assert outbox.take(1) == (run(3, 9, segment=20), run(0, 1, segment=40))
    outbox = Outbox()
    outbox.start(None, [run(0, 9), run(0, 9, segment=20)])
    assert outbox.take(1) == (run(9, 9, segment=20),)
    outbox.acked(1)
    outbox.start(ReplicatorCursor(Offset(0), EntryId(4)), [run(0, 9), run(0, 12, segment=20, session=2)])
    assert outbox.take(2) == (run(10, 12, segment=20, session=2),), "an older cursor does not move it back"


def test_a_backlog_beyond_the_limit_is_skipped_except_the_last_entry() -> None:
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


def test_at_most_runs_max_runs_are_kept() -> None:
    outbox = started()
    for segment in range(0, 2 * (RUNS_MAX + 10), 2):
        outbox.confirmed(run(0, 0, segment=segment))
    taken = outbox.take(1)
    assert len(taken) == RUNS_MAX
    assert taken[-1].segment == 2 * (RUNS_MAX + 9)


class ReplicatedShadow(RuleBasedStateMachine):
    """A source that writes, rolls and changes its owner, and a shadow whose connections are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[EntryRun] = []
        """One run for each entry."""
        self.outbox = started()
        self.segment, self.session, self.entry = 0, 1, 0
        self.frame = 0
        self.in_flight: list[tuple[int, tuple[EntryRun, ...]]] = []
        self.acks: list[int] = []
        self.received: list[tuple[int, int]] = []
        self.stored: ReplicatorCursor | None = None

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
    def send(self) -> None:
        self.frame += 1
        self.in_flight.append((self.frame, self.outbox.take(self.frame)))

    @precondition(lambda self: self.in_flight)
    @rule(acknowledged=st.booleans())
    def arrive(self, acknowledged: bool) -> None:
        frame, runs = self.in_flight.pop(0)
        for one in runs:
            self.received += [(one.segment, entry) for entry in range(one.first, one.last + 1)]
        if acknowledged:
            self.acks.append(frame)

    @precondition(lambda self: self.acks)
    @rule()
    def ack(self) -> None:
        self.outbox.acked(self.acks.pop(0))

    @rule()
    def lose_connection(self) -> None:
        self.in_flight.clear()
        self.acks.clear()
        self.outbox.lost()

    @rule()
    def store(self) -> None:
        self.stored = self.outbox.cursor

    @rule()
    def another_owner(self) -> None:
        """The new owner claims the last segment with a new session, and starts with all entries written so far.

        Without a stored cursor it starts at the end of the log.
        """
        self.session += 1
        if self.stored is None:
            self.received.clear()
        self.in_flight.clear()
        self.acks.clear()
        self.outbox = Outbox()
        runs: list[EntryRun] = []
        for one in self.written:
            again = one._replace(session=SessionId(self.session if one.segment == self.segment else 1))
            joined = runs[-1].joined(again) if runs else None
            runs[-1:] = [*runs[-1:], again] if joined is None else [joined]
        self.outbox.start(self.stored, runs)

    @invariant()
    def the_cursor_is_after_a_received_entry_and_never_moves_back(self) -> None:
        cursor = self.outbox.cursor
        if cursor is not None:
            assert (cursor.segment, cursor.entry - 1) in self.received
            assert self.stored is None or cursor >= self.stored

    def teardown(self) -> None:
        self.lose_connection()
        if self.outbox.unsent:
            self.send()
            self.arrive(acknowledged=True)
            self.ack()
        if self.received:
            last, first = self.written[-1], min(self.received)
            assert self.received[-1] == (last.segment, last.last)
            expected = [(one.segment, one.last) for one in self.written if (one.segment, one.last) >= first]
            assert sorted(set(self.received)) == expected, "an entry was skipped"
        assert self.received or not self.written
        assert self.outbox.backlog()[0] == 0


def test_a_shadow_receives_every_entry_and_finally_the_last_although_connections_are_lost() -> None:
    run_state_machine_as_test(
        ReplicatedShadow, settings=settings(max_examples=200, stateful_step_count=40, deadline=None)
    )
