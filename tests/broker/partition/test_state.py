"""The table of a partition's states and events, checked in full (numbers: invariants of `state`).

The driver runs on a chain and ledgers that answer on the test's command, so each event can happen in each state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from gnomon.bookie.errors import LedgerError, LedgerFailed, LedgerFenced
from gnomon.broker.partition import log as partition_log
from gnomon.broker.partition import writable
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.producers import AwaitedBatches
from gnomon.broker.partition.readable import REOPEN_SECONDS
from gnomon.broker.partition.state import FINAL, SHOWN, TABLE, WRITABLE, PartitionEvent, PartitionState
from gnomon.log.entry import LeaderEpoch, Offset
from gnomon.metadata.client import MetadataUnavailable
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.state_table import after
from gnomon.runtime.trio_world import TrioClock
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch

S, E = PartitionState, PartitionEvent
ENTRIES = [(state, event) for state, row in TABLE.items() for event in row]
OTHERS = [(state, event) for state in S for event in E if event not in TABLE[state]]
FAILURES = {E.WRITING_FAILED: LedgerFailed("too few bookies", outcome_unknown=True), E.FENCED: LedgerFenced("claimed")}


def named(values: Sequence[tuple[PartitionState, PartitionEvent]]) -> list[str]:
    return [f"{state.value}, {event.value}" for state, event in values]


@pytest.mark.parametrize(("state", "event"), OTHERS, ids=named(OTHERS))
def test_an_event_that_the_table_does_not_have_is_refused(state: PartitionState, event: PartitionEvent) -> None:
    with pytest.raises(AssertionError, match=f"PartitionState: '{state.value}' met the event '{event.value}'"):
        after(TABLE, state, event)  # invariant 1


def test_the_table_has_a_row_for_each_state_and_each_state_can_be_reached_and_left() -> None:
    assert set(TABLE) == set(S)
    reached, new = {S.CLOSED}, {S.CLOSED}
    while new:
        new = {found for state in new for found in TABLE[state].values()} - reached
        reached |= new
    assert reached == set(S)
    for state in set(S) - set(FINAL):
        assert set(TABLE[state].values()) - {state}, f"{state} is never left"


def test_a_final_state_is_left_only_by_the_deletion_of_the_topic() -> None:  # invariant 5
    assert {found for state in FINAL for event, found in TABLE[state].items() if event is not E.END} == set(FINAL)


class Gate:
    """Work of a fake that waits until a test says how it ends."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[trio.Event, list[Exception]]] = deque()

    async def wait(self) -> None:
        ended, errors = trio.Event(), list[Exception]()
        self._waiting.append((ended, errors))
        await ended.wait()
        if errors:
            raise errors[0]

    async def end(self, error: Exception | None = None) -> None:
        ended, errors = self._waiting.popleft()
        if error is not None:
            errors.append(error)
        ended.set()
        await trio.testing.wait_all_tasks_blocked()


class Ledger:
    """Keeps the callbacks of its entries."""

    def __init__(self) -> None:
        self.next_entry = 0
        self.in_flight: deque[Callable[[int, LedgerError | None], None]] = deque()

    def append(self, payload: object, stored: Callable[[int, LedgerError | None], None]) -> None:
        self.next_entry += 1
        self.in_flight.append(stored)

    async def drained(self) -> None:
        assert not self.in_flight, "no test rolls over entries in flight"


class Segment:
    size_bytes = 0

    def __init__(self) -> None:
        self.ledger = Ledger()

    def tell(self, callback: object) -> None:
        """Nobody listens."""


class FakeChain:
    """Opens, rolls and answers when a test says so."""

    def __init__(self) -> None:
        self.opens, self.asks, self.rolls = Gate(), Gate(), Gate()

    async def open(self, settings: PartitionSettings, now_ms: int) -> tuple[PartitionLog, list[Segment]]:
        await self.opens.wait()
        return PartitionLog(LeaderEpoch(0), Offset(0), Offset(0), settings), [Segment()]

    async def ask(self) -> None:
        await self.asks.wait()

    async def roll(self, log: PartitionLog, segment: Segment, now_ms: int) -> Segment:
        await self.rolls.wait()
        return Segment()


NO_RECODER: Any = None


class Driven:
    """A partition, and the ways to have each event happen to it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.chain: Any = FakeChain()
        self.clock = TrioClock()
        self.outcomes: list[ErrorCode] = []
        settings = PartitionSettings(segment_bytes=400, timestamp_after_ms_max=1 << 60)
        self.partition = Partition(
            self.chain,
            settings,
            self.clock,
            nursery,
            lambda partition: None,
            lambda: None,
            SilentLogger(),
            AwaitedBatches(),
            LeaderPolicy(tells_epochs=True, confirms_leadership=False),
            NO_RECODER,
        )
        self.ledger: Any = None
        """The ledger that has entries in flight."""

    def appended(self, slot: object, outcome: Any) -> None:
        self.outcomes.append(outcome.error)

    async def append(self, value_bytes: int = 50) -> None:
        batch = build_batch([Record(value=bytes(value_bytes))], base_timestamp=1000)
        self.partition.append(memoryview(batch), self, 0)
        if self.partition._state in WRITABLE:
            self.ledger = self.partition.segments[-1].ledger
        await trio.testing.wait_all_tasks_blocked()

    async def stored(self, error: LedgerError | None = None) -> None:
        """One more entry in flight is stored, or fails."""
        self.ledger.in_flight.popleft()(0, error)
        await trio.testing.wait_all_tasks_blocked()

    # --- reaching states ---------------------------------------------------------------------------------------------

    async def reach(self, state: PartitionState) -> None:
        """Brings a new partition into a state."""
        await getattr(self, f"_{state.name.lower()}")()
        assert self.partition._state is state

    async def _closed(self) -> None:
        """Nothing was used yet."""

    async def _opening(self) -> None:
        self.partition.open_log()
        await trio.testing.wait_all_tasks_blocked()

    async def _open(self) -> None:
        await self._opening()
        await self.chain.opens.end()

    async def _rolling(self) -> None:
        await self._open()
        await self.append(200)
        await self.stored()
        await self.append(200)

    async def _overrunning(self) -> None:
        await self._rolling()
        await self.chain.asks.end(MetadataUnavailable("away"))
        await self.stored()

    async def _full(self) -> None:
        await self._overrunning()
        await self.append(400)

    async def _readable(self) -> None:
        await self._open()
        for _ in range(3):
            await self.append(1)
        await self.stored(FAILURES[E.WRITING_FAILED])

    async def _reopening(self) -> None:
        await self._readable()
        await self.append()

    async def _released(self) -> None:
        self.partition.release()

    async def _ended(self) -> None:
        self.partition.end()


def in_flight_while(state: PartitionState, event: PartitionEvent) -> Callable[[Driven], Awaitable[None]]:
    """Several entries are in flight and fail one by one; in between the partition reaches `state`."""

    async def play(driven: Driven) -> None:
        await driven.reach(S.OPEN)
        for _ in range(3):
            await driven.append(1)
        partition = driven.partition
        if state in (S.CLOSED, S.OPENING):
            await driven.stored(FAILURES[E.FENCED])
        if state is S.OPENING:
            await trio.sleep(REOPEN_SECONDS)  # as if the process was stopped in the middle of a turn
            await driven.append()
        if state is S.RELEASED:
            partition.release()
        if state is S.ENDED:
            partition.end()
        assert partition._state is state
        await driven.stored(FAILURES[event])

    return play


def under_way_while(
    before: PartitionState, final: PartitionState, end: Callable[[Driven], Awaitable[None]]
) -> Callable[[Driven], Awaitable[None]]:
    """An operation that began in the state `before` ends after the partition was released, or its topic deleted."""

    async def play(driven: Driven) -> None:
        await driven.reach(before)
        if before is S.ROLLING:
            await driven.chain.asks.end()
        (driven.partition.release if final is S.RELEASED else driven.partition.end)()
        await end(driven)

    return play


async def opened(driven: Driven) -> None:
    await driven.chain.opens.end()


async def opening_failed(driven: Driven) -> None:
    await driven.chain.opens.end(MetadataUnavailable("away"))


async def rolled(driven: Driven) -> None:
    if driven.partition._state in (S.ROLLING, S.FULL):
        await driven.chain.asks.end() if driven.partition._state is S.ROLLING else await last_asked(driven)
    await driven.chain.rolls.end()


async def last_asked(driven: Driven) -> None:
    """The retry of the postponed roll asks first."""
    driven.chain.asks._waiting.rotate(1)
    await driven.chain.asks.end()


def then(state: PartitionState, act: Callable[[Driven], Awaitable[None]]) -> Callable[[Driven], Awaitable[None]]:
    async def play(driven: Driven) -> None:
        await driven.reach(state)
        await act(driven)

    return play


def failing(event: PartitionEvent) -> Callable[[Driven], Awaitable[None]]:
    async def act(driven: Driven) -> None:
        if driven.partition._state in (S.OPEN, S.OVERRUNNING):
            await driven.append(1)
        if driven.partition._state is S.ROLLING:
            await driven.chain.asks.end()
            await driven.chain.rolls.end(FAILURES[event])
        elif driven.partition._state is S.FULL:
            await last_asked(driven)
            await driven.chain.rolls.end(FAILURES[event])
        else:
            await driven.stored(FAILURES[event])

    return act


async def released(driven: Driven) -> None:
    driven.partition.release()


async def ended(driven: Driven) -> None:
    driven.partition.end()


async def postponed(driven: Driven) -> None:
    await driven.chain.asks.end(MetadataUnavailable("away"))


async def metadata_back(driven: Driven) -> None:
    await driven.chain.asks.end()


async def a_large_append(driven: Driven) -> None:
    if driven.partition._state is S.OPEN:
        await driven.append(200)
        await driven.stored()
    await driven.append(400)


def play_of(state: PartitionState, event: PartitionEvent) -> Callable[[Driven], Awaitable[None]]:
    """Brings a partition into a state, and makes an event happen there."""
    if event in FAILURES and state in (S.CLOSED, S.OPENING, S.RELEASED, S.ENDED):
        return in_flight_while(state, event)
    if event is E.OPENED and state in FINAL:
        return under_way_while(S.OPENING, state, opened)
    if event is E.OPENING_FAILED and state in FINAL:
        return under_way_while(S.OPENING, state, opening_failed)
    if event is E.ROLLED and state in FINAL:
        return under_way_while(S.ROLLING, state, rolled)
    acts = {
        E.OPEN: Driven.append,
        E.OPENED: opened,
        E.OPENING_FAILED: opening_failed,
        E.WRITING_FAILED: failing(E.WRITING_FAILED),
        E.FENCED: failing(E.FENCED),
        E.ROLL: a_large_append,
        E.ROLLED: rolled,
        E.ROLL_POSTPONED: postponed,
        E.METADATA_BACK: metadata_back,
        E.RELEASE: released,
        E.END: ended,
    }
    return then(state, acts[event])


@pytest.mark.parametrize(("state", "event"), ENTRIES, ids=named(ENTRIES))
def test_each_entry_of_the_table_happens_in_the_driver(
    monkeypatch: pytest.MonkeyPatch, state: PartitionState, event: PartitionEvent
) -> None:
    met: list[tuple[PartitionState, PartitionEvent]] = []

    def following(_table: object, before: PartitionState, happened: PartitionEvent) -> PartitionState:
        met.append((before, happened))
        return after(TABLE, before, happened)

    monkeypatch.setattr(writable, "after", following)
    monkeypatch.setattr(partition_log, "OVERRUN_BYTES_MAX", 400)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            driven = Driven(nursery)
            await play_of(state, event)(driven)
            assert (state, event) in met
            partition = driven.partition
            if partition._state is not S.RELEASED:  # a log that was released is kept for the entries in flight
                assert (partition.log is not None) == (partition._state in SHOWN)  # invariant 2
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
