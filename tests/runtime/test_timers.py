from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.trio_world import TrioClock


def run_with_timers(main: Callable[[Timers], Awaitable[None]]) -> None:
    async def with_timers() -> None:
        timers = Timers(TrioClock())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            await main(timers)
            nursery.cancel_scope.cancel()

    trio.run(with_timers, clock=trio.testing.MockClock(autojump_threshold=0))


def test_callbacks_run_at_their_deadlines_in_order() -> None:
    ran: list[tuple[str, float]] = []

    async def main(timers: Timers) -> None:
        start = trio.current_time()
        for name, delay in (("late", 3.0), ("early", 1.0), ("middle", 2.0), ("middle too", 2.0)):
            timers.call_at(start + delay, lambda name=name: ran.append((name, trio.current_time() - start)))
        await trio.sleep(10)

    run_with_timers(main)
    assert ran == [("early", 1.0), ("middle", 2.0), ("middle too", 2.0), ("late", 3.0)]


def test_an_earlier_deadline_wakes_the_sleeping_task() -> None:
    ran: list[float] = []

    async def main(timers: Timers) -> None:
        start = trio.current_time()
        timers.call_at(start + 100, lambda: ran.append(trio.current_time() - start))
        await trio.sleep(1)
        timers.call_at(start + 5, lambda: ran.append(trio.current_time() - start))
        await trio.sleep(200)

    run_with_timers(main)
    assert ran == [5.0, 100.0]


def test_a_cancelled_timer_never_runs_and_cancelling_late_or_twice_does_nothing() -> None:
    ran: list[str] = []

    async def main(timers: Timers) -> None:
        start = trio.current_time()
        kept = timers.call_at(start + 1, lambda: ran.append("kept"))
        dropped = timers.call_at(start + 1, lambda: ran.append("dropped"))
        dropped.cancel()
        dropped.cancel()
        assert len(timers) == 1
        await trio.sleep(2)
        kept.cancel()
        assert len(timers) == 0

    run_with_timers(main)
    assert ran == ["kept"]


def test_a_callback_may_add_a_timer_that_is_due_at_once() -> None:
    ran: list[float] = []

    async def main(timers: Timers) -> None:
        start = trio.current_time()

        def again() -> None:
            ran.append(trio.current_time() - start)
            if len(ran) < 3:
                timers.call_at(trio.current_time(), again)

        timers.call_at(start + 1, again)
        await trio.sleep(2)

    run_with_timers(main)
    assert ran == [1.0, 1.0, 1.0]


def test_cancelled_timers_do_not_pile_up() -> None:
    async def main(timers: Timers) -> None:
        keep = [timers.call_at(100.0 + n, lambda: None) for n in range(10)]
        for n in range(10_000):
            timers.call_at(1000.0 + n, lambda: None).cancel()
        assert len(timers) == len(keep)
        assert len(timers._heap) < 200

    run_with_timers(main)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=200))
def test_exactly_the_timers_that_were_not_cancelled_run_in_order(plan: list[tuple[int, bool]]) -> None:
    ran: list[tuple[int, int]] = []

    async def main(timers: Timers) -> None:
        start = trio.current_time()
        for number, (delay, cancelled) in enumerate(plan):
            timer = timers.call_at(start + 1 + delay, lambda item=(delay, number): ran.append(item))
            if cancelled:
                timer.cancel()
        await trio.sleep(30)

    run_with_timers(main)
    assert ran == sorted((delay, number) for number, (delay, cancelled) in enumerate(plan) if not cancelled)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 199), max_size=30)), max_size=200))
def test_callbacks_that_cancel_many_others_leave_exactly_the_rest_in_order(plan: list[tuple[int, list[int]]]) -> None:
    """1, 2, 3: like a sorted list from which the cancelled ones are removed."""
    ran: list[int] = []
    lengths: list[tuple[int, int]] = []

    async def main(timers: Timers) -> None:
        start = trio.current_time()
        made: list[Timer] = []

        def run(number: int) -> None:
            ran.append(number)
            for other in plan[number][1]:
                if other < len(made):
                    made[other].cancel()
            lengths.append((len(timers), sum(timer.callback is not None for timer in made)))

        for number, (delay, _) in enumerate(plan):
            made.append(timers.call_at(start + 1 + delay, lambda number=number: run(number)))
        await trio.sleep(30)

    run_with_timers(main)
    expected: list[int] = []
    left = sorted((delay, number) for number, (delay, _) in enumerate(plan))
    while left:
        _, number = left.pop(0)
        expected.append(number)
        left = [item for item in left if item[1] not in plan[number][1]]
    assert ran == expected
    assert all(counted == alive for counted, alive in lengths)
