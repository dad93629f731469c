from __future__ import annotations

import trio
import trio.testing

from gnomon.runtime.signal import Signal


async def count_wakings(signal: Signal, woken: list[int]) -> None:
    while True:
        await signal.wait()
        woken.append(len(woken))


def test_notify_wakes_every_waiting_task_again_and_again() -> None:
    async def main() -> None:
        signal, woken = Signal(), list[list[int]]([[], []])
        async with trio.open_nursery() as nursery:
            for times in woken:
                nursery.start_soon(count_wakings, signal, times)
            for rounds in (1, 2, 3):
                await trio.testing.wait_all_tasks_blocked()
                signal.notify()
                await trio.testing.wait_all_tasks_blocked()
                assert list(map(len, woken)) == [rounds, rounds]
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_notify_does_not_wake_a_task_that_waits_later() -> None:
    async def main() -> None:
        signal = Signal()
        signal.notify()
        with trio.move_on_after(1) as scope:
            await signal.wait()
        assert scope.cancelled_caught

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_set_wakes_waiting_tasks_and_later_ones_until_it_is_cleared() -> None:
    async def main() -> None:
        signal, woken = Signal(), list[int]()
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                await signal.wait()
                woken.append(1)

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            signal.set()
            await trio.testing.wait_all_tasks_blocked()
            assert (signal.is_set(), len(woken)) == (True, 1)
            with trio.testing.assert_checkpoints():
                await signal.wait()
            signal.clear()
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert (signal.is_set(), len(woken)) == (False, 1)
            signal.set()

    trio.run(main)


def test_a_cancelled_waiter_does_not_affect_the_others() -> None:
    async def main() -> None:
        signal, woken = Signal(), list[int]()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_wakings, signal, woken)
            with trio.move_on_after(1):
                await signal.wait()
            signal.notify()
            await trio.testing.wait_all_tasks_blocked()
            assert len(woken) == 1
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
