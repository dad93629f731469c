"""Calls that share a bounded part of each turn; numbers cite the invariants of `paced_calls`."""

from __future__ import annotations

from collections.abc import Callable

import trio
import trio.testing

from gnomon.broker.tables.paced_calls import PacedCalls
from gnomon.runtime.loop.turn_share import SHARE_SECONDS


class SlowClock:
    """A clock that calls move on; a sleep ends a turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = 0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.turns += 1
        await trio.lowlevel.checkpoint()


async def run(seconds: list[float], *, last_is_shared: bool = False) -> list[tuple[int, int]]:
    """Makes calls that take so long; returns the number of each and its turn, in the order of the runs."""
    clock, found = SlowClock(), list[tuple[int, int]]()

    def call(number: int, takes: float) -> Callable[[], None]:
        def work() -> None:
            clock.now += takes
            found.append((number, clock.turns))

        return work

    async with trio.open_nursery() as nursery:
        paced = PacedCalls(clock, nursery)
        for number, takes in enumerate(seconds):
            is_shared = last_is_shared and number == len(seconds) - 1
            (paced.run_shared if is_shared else paced.run)("owner", call(number, takes))
    return found


def test_short_calls_run_at_once() -> None:  # 1
    assert trio.run(run, [0.0] * 5) == [(number, 0) for number in range(5)]


def test_calls_beyond_the_share_wait_for_later_turns_in_their_order() -> None:  # 1
    found = trio.run(run, [SHARE_SECONDS / 2] * 7)
    assert [number for number, _ in found] == list(range(7))
    assert [turn for _, turn in found] == [0, 0, 1, 1, 2, 2, 3]


def test_a_call_of_a_stream_with_a_share_runs_at_once_unless_others_wait() -> None:  # 2
    async def found(seconds: list[float]) -> list[tuple[int, int]]:
        return await run(seconds, last_is_shared=True)

    assert trio.run(found, [SHARE_SECONDS, 0.0]) == [(0, 0), (1, 0)]
    assert trio.run(found, [SHARE_SECONDS, 0.0, 0.0]) == [(0, 0), (1, 1), (2, 1)]


def test_a_call_that_makes_the_call_that_spends_the_share_pauses_once() -> None:  # 1
    async def turns() -> list[int]:
        clock, found = SlowClock(), list[int]()

        def work() -> None:
            clock.now += SHARE_SECONDS
            found.append(clock.turns)

        async with trio.open_nursery() as nursery:
            paced = PacedCalls(clock, nursery)
            for _ in range(4):
                paced.run("owner", lambda: paced.run("owner", work))
        return found

    assert trio.run(turns) == [0, 1, 2, 3]


def test_the_many_calls_of_one_owner_delay_those_of_others_by_one_each() -> None:  # 3
    async def owners() -> list[str]:
        clock, found = SlowClock(), list[str]()

        def call(owner: str) -> Callable[[], None]:
            def work() -> None:
                clock.now += SHARE_SECONDS
                found.append(owner)

            return work

        async with trio.open_nursery() as nursery:
            paced = PacedCalls(clock, nursery)
            for owner in ["a"] * 5 + ["b"] * 2 + ["c"]:
                paced.run(owner, call(owner))
            paced.run_shared("d", call("d"))  # nothing of its owner waits
            paced.run_shared("c", call("c"))
        return found

    assert trio.run(owners) == ["a", "d", "a", "b", "c", "a", "b", "c", "a", "a"]
