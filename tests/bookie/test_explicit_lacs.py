"""Explicit LACs: the bookie ends up with the highest of each ledger, in any order of calls, losses and restarts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from time import process_time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from lac_house import LacHouse, Sent

from gnomon.bookie import explicit_lacs, remote
from gnomon.bookie.bookie import Confirmed
from gnomon.bookie.explicit_lacs import EXPLICIT_LACS_MAX, ExplicitLacs, LacRequest
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.remote import ASKED_AT_ONCE, SURE
from gnomon.testing.storms.rest.sizes import sizes_of

LEDGER = 1
OTHERS = range(10, 10 + ASKED_AT_ONCE)
"""As many ledgers as are asked for in one turn."""
SETTLE_SECONDS = SURE.seconds(100) + 1


def lac(entry: int, session: int = 1) -> Confirmed:
    return Confirmed(EntryId(entry), SessionId(session))


def confirmed(lacs: ExplicitLacs, entry: int, ledger: int = LEDGER) -> None:
    lacs.confirm(LedgerId(ledger), lac(entry))
    lacs.take_fresh()


def asked(lacs: ExplicitLacs) -> list[LacRequest]:
    """The requests of a whole round."""
    lacs.begin_round()
    return lacs.ask(EXPLICIT_LACS_MAX)


@pytest.fixture
def lacs() -> ExplicitLacs:
    return ExplicitLacs()


def test_a_failure_of_an_earlier_request_does_not_displace_the_higher_lac_that_waits_for_its_turn() -> None:
    house = LacHouse()
    house.confirm(LEDGER, 5)
    house.wait(0.51)
    (_, earlier) = house.sent
    for ledger in OTHERS:
        house.confirm(ledger, 1)
    house.confirm(LEDGER, 6)
    house.wait(0.01 + SURE.seconds(1))  # the first turn of the round; the ledger is left for the second
    assert len(house.requests()) == 1 + ASKED_AT_ONCE
    house.lose(earlier)
    house.wait(0.01)
    assert house.sent[-1].entry == 6
    house.deliver_all()
    house.wait(SETTLE_SECONDS)
    assert house.memory[LEDGER] == 6


def test_a_start_of_the_bookie_does_not_displace_the_higher_lac_that_waits_for_its_turn() -> None:
    house = LacHouse()
    house.confirm(LEDGER, 5)
    house.wait(1)
    house.deliver_all()
    for ledger in OTHERS:
        house.confirm(ledger, 1)
    house.confirm(LEDGER, 6)
    house.wait(0.01 + SURE.seconds(1))
    house.lose_all()
    house.restart()
    house.seen(new_client=False)
    house.wait(1)
    house.deliver_all()
    assert house.memory[LEDGER] == 6


def test_a_request_that_is_lost_after_the_restart_was_seen_does_not_displace_its_lac() -> None:
    house = LacHouse()
    house.confirm(LEDGER, 5)
    house.wait(1)
    house.deliver_all()
    house.confirm(LEDGER, 6)
    house.wait(1)
    house.restart()
    house.seen(new_client=True)
    house.lose_all()
    house.wait(1)
    house.deliver_all()
    assert house.memory[LEDGER] == 6


def test_an_acknowledgement_from_before_the_restart_does_not_count() -> None:  # 3
    house = LacHouse()
    house.confirm(LEDGER, 5)
    house.wait(1)
    (sent,) = house.requests()
    house.arrive(sent)
    house.restart()
    house.seen(new_client=True)
    house.answer(sent)
    house.wait(1)
    house.deliver_all()
    assert house.memory[LEDGER] == 5


def test_a_restarted_bookie_is_asked_at_once_after_many_failures() -> None:
    house = LacHouse()
    house.confirm(LEDGER, 5)
    for _ in range(10):
        house.wait(SETTLE_SECONDS)
        house.lose_all()
    house.wait(1)
    assert not house.sent
    house.restart()
    house.seen(new_client=False)
    house.wait(SURE.seconds(1))
    house.deliver_all()
    assert house.memory[LEDGER] == 5


def test_the_pauses_between_rounds_grow_also_if_their_turns_fail_before_the_last_one() -> None:
    house = LacHouse()
    for ledger in OTHERS:
        house.confirm(ledger, 1)
    house.confirm(LEDGER, 5)
    begins = []
    for _ in range(4):
        while len(house.requests()) < ASKED_AT_ONCE:
            house.wait(0.001)
        begins.append(house.clock.now)
        house.lose_all()
        house.wait(0.002)
        house.lose_all()
    pauses = [later - earlier for earlier, later in pairwise(begins)]
    assert pauses == pytest.approx([SURE.seconds(failures) for failures in (2, 3, 4)], abs=0.01)


def test_a_dismissed_bookie_gets_no_lac_and_leaves_no_timer() -> None:
    house = LacHouse()
    house.confirm(LEDGER, 5)
    house.wait(1)
    house.lose_all()
    house.confirm(LEDGER, 6)
    house.bookie.retire()
    house.wait(SETTLE_SECONDS)
    house.confirm(LEDGER, 7)
    assert not house.sent
    assert not len(house.timers)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("lower", "higher"), [(lac(5), lac(6)), (lac(5, session=2), lac(6, session=1)), (lac(5, 1), lac(5, 2))]
)
def test_the_highest_lac_of_a_ledger_is_the_one_of_the_highest_entry_then_session(
    lacs: ExplicitLacs, lower: Confirmed, higher: Confirmed, order: int
) -> None:  # 1
    for each in (lower, higher)[::order]:
        lacs.confirm(LedgerId(LEDGER), each)
        lacs.take_fresh()
    assert [request.confirmed for request in asked(lacs)] == [higher]


def test_an_acknowledgement_of_a_lower_lac_leaves_the_higher_one_due(lacs: ExplicitLacs) -> None:  # 3
    confirmed(lacs, 5)
    (request,) = asked(lacs)
    confirmed(lacs, 6)
    lacs.acknowledged(request)
    assert lacs.is_due
    assert [request.confirmed.entry for request in asked(lacs)] == [6]


@pytest.mark.parametrize("higher", [5, 6])
def test_an_answer_to_an_earlier_request_does_not_end_the_one_under_way(lacs: ExplicitLacs, higher: int) -> None:  # 3
    confirmed(lacs, 5)
    (earlier,) = asked(lacs)
    confirmed(lacs, higher)
    lacs.has_started()
    (request,) = asked(lacs)
    lacs.acknowledged(earlier)
    assert lacs.failed(request), "it is under way still"
    assert [request.confirmed.entry for request in asked(lacs)] == [higher]


def test_an_acknowledged_lac_is_due_again_after_a_start_alone(lacs: ExplicitLacs) -> None:  # 2
    confirmed(lacs, 5)
    lacs.acknowledged(*asked(lacs))
    confirmed(lacs, 5)
    assert not lacs.is_due
    lacs.has_started()
    assert [request.confirmed.entry for request in asked(lacs)] == [5]


def test_a_failed_request_is_made_again_in_another_round_and_not_in_this_one(lacs: ExplicitLacs) -> None:  # 5
    for ledger in range(3):
        confirmed(lacs, 5, ledger)
    lacs.begin_round()
    (first,) = lacs.ask(1)
    assert lacs.failed(first)
    assert [request.ledger for request in lacs.ask(10)] == [1, 2]
    assert not lacs.in_round
    assert [request.ledger for request in asked(lacs)] == [0]


def test_the_lacs_of_the_ledgers_confirmed_last_are_kept(lacs: ExplicitLacs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explicit_lacs, "EXPLICIT_LACS_MAX", 3)  # 4
    for entry, ledger in enumerate((0, 1, 2, 0, 3)):
        confirmed(lacs, entry, ledger)
    assert [(request.ledger, request.confirmed.entry) for request in asked(lacs)] == [(2, 2), (0, 3), (3, 4)]


def test_a_ledger_confirmed_again_counts_as_confirmed_last(lacs: ExplicitLacs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explicit_lacs, "EXPLICIT_LACS_MAX", 2)  # 4
    for ledger in range(2):
        confirmed(lacs, 5, ledger)
    for request in asked(lacs):
        lacs.acknowledged(request)
    confirmed(lacs, 6, 0)
    lacs.has_started()
    confirmed(lacs, 5, 2)
    assert [request.ledger for request in asked(lacs)] == [0, 2]


def test_a_request_about_a_lac_that_was_dropped_is_over(lacs: ExplicitLacs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explicit_lacs, "EXPLICIT_LACS_MAX", 1)  # 4
    confirmed(lacs, 5, 0)
    (request,) = asked(lacs)
    confirmed(lacs, 5, 1)
    assert lacs.is_due
    assert not lacs.failed(request)
    lacs.acknowledged(request)
    lacs.has_started()
    assert [request.ledger for request in asked(lacs)] == [1]


def test_a_start_with_all_the_lacs_that_are_kept_holds_the_loop_for_less_than_10_ms() -> None:  # 4
    def start_seconds() -> float:
        lacs = ExplicitLacs()
        for ledger in range(EXPLICIT_LACS_MAX):
            lacs.confirm(LedgerId(ledger), lac(5))
        lacs.take_fresh()
        for request in asked(lacs):
            lacs.acknowledged(request)
        for ledger in range(EXPLICIT_LACS_MAX, 2 * EXPLICIT_LACS_MAX):
            lacs.confirm(LedgerId(ledger), lac(5))
        lacs.take_fresh()
        before = process_time()
        lacs.has_started()
        return process_time() - before

    assert min(start_seconds() for _ in range(3)) < 0.01


class LacMachine(RuleBasedStateMachine):
    """One bookie, and one process that confirms entries of its ledgers to it.

    Calls arrive, are lost and are answered in any order, also after the bookie's process to which they were sent is
    gone. A restart is seen some time after it.
    """

    ledgers_max = 1 << 30
    """EXPLICIT_LACS_MAX."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(explicit_lacs, "EXPLICIT_LACS_MAX", self.ledgers_max)
        self.patch.setattr(remote, "ASKED_AT_ONCE", 2)
        self.house = LacHouse()
        self.highest: dict[int, int] = {}
        """The highest entry confirmed of each ledger, the ledger confirmed last at the end."""
        self.seen_start = 0

    @rule(ledger=st.integers(0, 5), entry=st.integers(0, 9), session=st.integers(1, 3))
    def confirm(self, ledger: int, entry: int, session: int) -> None:
        entry = self.entry_of(ledger, entry)
        self.house.confirm(ledger, entry, session)
        self.highest[ledger] = max(entry, self.highest.pop(ledger, entry))

    @rule(seconds=st.sampled_from((0.001, 0.01, 0.5, 1.0, 31.0)))
    def wait(self, seconds: float) -> None:
        self.house.wait(seconds)

    @precondition(lambda self: self.house.sent)
    @rule(data=st.data(), end=st.sampled_from((LacHouse.arrive, LacHouse.answer, LacHouse.lose)))
    def end_one(self, data: st.DataObject, end: Callable[[LacHouse, Sent], None]) -> None:
        end(self.house, data.draw(st.sampled_from(self.house.sent)))

    @rule()
    def deliver_all(self) -> None:
        self.house.deliver_all()

    @rule()
    def restart(self) -> None:
        self.house.restart()

    @rule(new_client=st.booleans())
    def see(self, new_client: bool) -> None:
        self.house.seen(new_client=new_client)
        self.seen_start = self.house.start

    @rule()
    def dismiss(self) -> None:
        self.house.bookie.retire()
        self.house.restart()
        self.house.meet()
        self.seen_start = self.house.start
        self.highest.clear()

    @invariant()
    def no_more_is_kept_than_allowed(self) -> None:
        held = sizes_of(self.house.bookie).held
        for name in ("_unsure", "_asked", "_acknowledged"):
            assert held[f"ExplicitLacs.{name}"] <= self.ledgers_max

    def teardown(self) -> None:
        try:
            if self.seen_start != self.house.start:
                self.see(new_client=False)
            self.house.lose_all()
            for _ in range(2):
                self.house.wait(SETTLE_SECONDS)
                self.house.deliver_all()
            self.judge()
            self.house.wait(SETTLE_SECONDS)
            assert not self.house.sent, "an acknowledged LAC is not sent again"
            assert not len(self.house.timers)
        finally:
            self.patch.undo()

    def entry_of(self, _ledger: int, entry: int) -> int:
        return entry

    def judge(self) -> None:
        assert self.house.memory == self.highest


class BoundedLacMachine(LacMachine):
    """The same where few LACs are kept: the ledger confirmed last is among them."""

    ledgers_max = 2

    def entry_of(self, ledger: int, _entry: int) -> int:
        return self.highest.get(ledger, -1) + 1  # a lower one would count as new where the highest was dropped

    def judge(self) -> None:
        for ledger in list(self.highest)[-1:]:
            assert self.house.memory[ledger] == self.highest[ledger]


@pytest.mark.parametrize("machine", [LacMachine, BoundedLacMachine])
def test_the_bookie_ends_up_with_the_highest_lac_of_each_ledger_that_is_kept(machine: type[LacMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=100, stateful_step_count=40))
