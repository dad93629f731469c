"""The table of states and events of a shadow's partition, checked in full (numbers: invariants of `state`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.readable import REOPEN_SECONDS
from gnomon.broker.shadow import partition as shadow_partition
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.shadow.state import FINAL, TABLE, ShadowEvent, ShadowState
from gnomon.metadata.client import MetadataUnavailable
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.state_table import after
from gnomon.runtime.trio_world import TrioClock
from gnomon.wire.kafka.errors import ErrorCode

S, E = ShadowState, ShadowEvent
ENTRIES = [(state, event) for state, row in TABLE.items() for event in row]
OTHERS = [(state, event) for state in S for event in E if event not in TABLE[state]]


def named(values: Sequence[tuple[ShadowState, ShadowEvent]]) -> list[str]:
    return [f"{state.value}, {event.value}" for state, event in values]


@pytest.mark.parametrize(("state", "event"), OTHERS, ids=named(OTHERS))
def test_an_event_that_the_table_does_not_have_is_refused(state: ShadowState, event: ShadowEvent) -> None:
    with pytest.raises(AssertionError, match=f"ShadowState: '{state.value}' met the event '{event.value}'"):
        after(TABLE, state, event)  # invariant 1


def test_a_final_state_is_never_left() -> None:  # invariant 3
    assert {found for state in FINAL for found in TABLE[state].values()} == set(FINAL)


class FakeSource:
    """A source without ledger records; the read of its records ends when a test says so."""

    def __init__(self) -> None:
        self.read = trio.Event()
        self.error: Exception | None = None

    async def join(self, partition: int, listener: object) -> None:
        await self.read.wait()
        if self.error is not None:
            raise self.error

    def leave(self, partition: int, listener: object) -> None:
        """No listener is kept."""

    def fail(self) -> None:
        self.error = MetadataUnavailable("away")
        self.read.set()


class Driven:
    """A partition without segments, and the ways to have each event happen to it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.source = FakeSource()
        source: Any = self.source
        nothing: Any = None
        self.partition = ShadowPartition(
            nothing,
            nothing,
            nothing,
            source,
            0,
            lambda: None,
            TrioClock(),
            nursery,
            lambda partition: None,
            lambda: None,
            SilentLogger(),
            LeaderPolicy(tells_epochs=False, confirms_leadership=True),
        )

    async def reach(self, state: ShadowState) -> None:
        if state in (S.OPENING, S.OPEN):
            self.partition.open_log()
            await trio.testing.wait_all_tasks_blocked()
        if state is S.OPEN:
            self.source.read.set()
            await trio.testing.wait_all_tasks_blocked()
        if state in FINAL:
            self.finish(state)
        assert self.partition._state is state

    def finish(self, state: ShadowState) -> None:
        (self.partition.release if state is S.RELEASED else self.partition.end)()


async def opening_ends(driven: Driven, state: ShadowState, event: ShadowEvent) -> None:
    """Ends the opening; in a final `state` the partition is released or ended in the same turn."""
    await driven.reach(S.OPENING)
    if event is E.OPENED:
        driven.source.read.set()
    else:
        driven.source.fail()
    if state in FINAL:
        driven.finish(state)


async def play(driven: Driven, state: ShadowState, event: ShadowEvent) -> None:
    if event in (E.OPENED, E.OPENING_FAILED):
        await opening_ends(driven, state, event)
        return
    await driven.reach(state)
    acts: dict[ShadowEvent, Callable[[], object]] = {
        E.OPEN: driven.partition.open_log,
        E.RELEASE: driven.partition.release,
        E.END: driven.partition.end,
    }
    acts[event]()


def run(work: Callable[[Driven], Awaitable[None]]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await work(Driven(nursery))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(("state", "event"), ENTRIES, ids=named(ENTRIES))
def test_each_entry_of_the_table_happens_in_the_driver(
    monkeypatch: pytest.MonkeyPatch, state: ShadowState, event: ShadowEvent
) -> None:
    met: list[tuple[ShadowState, ShadowEvent]] = []

    def following(_table: object, before: ShadowState, happened: ShadowEvent) -> ShadowState:
        met.append((before, happened))
        return after(TABLE, before, happened)

    monkeypatch.setattr(shadow_partition, "after", following)

    async def work(driven: Driven) -> None:
        await play(driven, state, event)
        await trio.testing.wait_all_tasks_blocked()
        assert (state, event) in met
        assert (driven.partition.log is not None) == (driven.partition._state is S.OPEN)  # invariant 2

    run(work)


def test_a_partition_released_while_its_opening_fails_answers_that_another_broker_leads_it() -> None:
    async def work(driven: Driven) -> None:  # invariant 3
        await opening_ends(driven, S.RELEASED, E.OPENING_FAILED)
        assert await driven.partition.opened() is None
        await trio.sleep(REOPEN_SECONDS)
        assert driven.partition.open_log() is None
        assert driven.partition.failure is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(work)


def test_a_partition_whose_opening_failed_is_opened_again_a_moment_later() -> None:
    async def work(driven: Driven) -> None:
        await opening_ends(driven, S.OPENING, E.OPENING_FAILED)
        assert await driven.partition.opened() is None
        assert driven.partition.failure is ErrorCode.KAFKA_STORAGE_ERROR
        driven.source.error = None
        assert await driven.partition.opened() is None
        await trio.sleep(REOPEN_SECONDS)
        assert await driven.partition.opened() is not None
        assert driven.partition.failure is None

    run(work)
