"""Long loops pause after as much work as a turn may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gnomon.runtime.loop.paced import PAUSE_SECONDS, STEPS_PER_TURN, PacedTasks, in_turns, paced
from gnomon.runtime.loop.turn_share import SHARE_SECONDS


class Pauses:
    """A clock that records its sleeps among the items."""

    def __init__(self) -> None:
        self.seen: list[int | str] = []

    async def sleep(self, seconds: float) -> None:
        assert seconds == PAUSE_SECONDS
        self.seen.append("pause")


@pytest.mark.parametrize(
    ("items", "weight", "expected"),
    [
        ([], 1, []),
        ([1, 2, 3], 1, [1, 2, 3]),
        ([1, 2, 3, 4], 1, [1, 2, 3, "pause", 4]),
        ([1, 2, 3, 4, 5, 6], 1, [1, 2, 3, "pause", 4, 5, 6]),
        ([1, 2, 3], 2, [1, 2, "pause", 3]),
        ([1, 2], 100, [1, "pause", 2]),
    ],
)
def test_a_loop_pauses_once_the_weights_of_a_turn_reach_its_bound_and_not_after_the_last_item(
    items: list[int], weight: int, expected: list[int | str]
) -> None:
    clock = Pauses()

    async def main() -> None:
        async for item in paced(items, 3, cast("Any", clock), lambda item: weight):
            clock.seen.append(item)

    trio.run(main)
    assert clock.seen == expected


class Turns:
    """A clock that begins another turn with each sleep, when nothing else runs."""

    def __init__(self) -> None:
        self.started: list[set[int]] = [set()]

    async def sleep(self, seconds: float) -> None:
        await wait_all_tasks_blocked()
        self.started.append(set())


def test_many_tasks_start_in_their_order_and_few_in_a_turn() -> None:
    clock = Turns()

    async def work(number: int) -> None:
        clock.started[-1].add(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            tasks = PacedTasks(nursery, 3, cast("Any", clock))
            for number in range(7):
                tasks.start_soon(work, number)
            await wait_all_tasks_blocked(0.05)
            assert clock.started == [{0, 1, 2}, {3, 4, 5}, {6}]
            tasks.start_soon(work, 7)

    trio.run(main)
    assert clock.started[-1] == {6, 7}


class Steps:
    """A clock, and steps that each take some of its seconds; records the numbers of steps between its sleeps."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.turns = [0]

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert seconds == PAUSE_SECONDS
        self.turns.append(0)

    def take(self, count: int) -> Iterator[None]:
        for _ in range(count):
            self.now += self.seconds
            self.turns[-1] += 1
            yield


@pytest.mark.parametrize(("seconds", "at_once"), [(0.0, STEPS_PER_TURN), (SHARE_SECONDS / 2, 2)])
def test_steps_pause_after_their_share_of_a_turn_or_after_many(seconds: float, at_once: int) -> None:
    steps = Steps(seconds)
    trio.run(in_turns, steps.take(2 * at_once + 1), cast("Any", steps))
    assert steps.turns == [at_once, at_once, 1]
