"""Turns of the event loop: their lengths, and the log of the long ones (numbers: invariants of `turn_watch`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from gnomon.runtime.limited_log import TEXT_CHARACTERS_MAX
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.loop.turn_watch import LONG_SECONDS, NOTED_SECONDS, TurnWatch, ran, work_for


class NotingLogger(SilentLogger):
    """Keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.warnings.append((event, fields))


def test_the_lengths_of_turns_are_counted_and_a_long_one_is_logged() -> None:
    log = NotingLogger()

    async def main() -> None:
        clock: Any = trio.lowlevel.current_clock()
        watch = TurnWatch(log)
        for seconds in (LONG_SECONDS / 2, 0, 3 * LONG_SECONDS):
            await trio.lowlevel.checkpoint()
            before, known = watch.seconds.sum_seconds, sum(watch.seconds.counts)
            clock.jump(seconds)
            await trio.lowlevel.checkpoint()
            assert watch.seconds.sum_seconds - before == pytest.approx(seconds)
            assert sum(watch.seconds.counts) > known

    trio.run(main, clock=trio.testing.MockClock())
    assert log.warnings == [("long_turn", {"seconds": 0.3})]


class Request:
    def __init__(self, name: str) -> None:
        self.name = name

    def named(self) -> dict[str, object]:
        return {"api": self.name}


Jump = Callable[[float], None]


def long_turns(main: Callable[[TurnWatch, Jump], Awaitable[None]]) -> list[dict[str, object]]:
    """The fields of the long turns within `main`."""
    log = NotingLogger()

    async def watched() -> None:
        clock: Any = trio.lowlevel.current_clock()
        watch = TurnWatch(log)
        await main(watch, clock.jump)

    trio.run(watched, clock=trio.testing.MockClock())
    assert all(event == "long_turn" for event, _ in log.warnings)
    return [fields for _, fields in log.warnings]


async def steps(jump: Jump, *seconds: float) -> None:
    for index, each in enumerate(seconds):
        if index:
            await trio.lowlevel.checkpoint()
        jump(each)


def test_a_long_turn_names_the_request_whose_task_took_most_of_it() -> None:
    """1."""

    async def main(watch: TurnWatch, jump: Jump) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work_for, Request("short"), steps, jump, 0.02)
            nursery.start_soon(work_for, Request("long"), steps, jump, 0.15)
            nursery.start_soon(steps, jump, 0.3)

    assert long_turns(main) == [{"seconds": 0.47, "api": "long", "request_seconds": 0.15}]


def test_a_long_step_in_the_middle_of_a_task_names_its_request() -> None:
    """1."""

    async def main(watch: TurnWatch, jump: Jump) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work_for, Request("paced"), steps, jump, 0, 0.2, 0)

    assert long_turns(main) == [{"seconds": 0.2, "api": "paced", "request_seconds": 0.2}]


def test_a_long_turn_names_a_request_that_was_dispatched_within_a_step() -> None:
    """1."""

    async def main(watch: TurnWatch, jump: Jump) -> None:
        await trio.lowlevel.checkpoint()
        jump(0.25)
        ran(Request("dispatched"), 0.2)
        ran(Request("other"), 0.05)
        await trio.lowlevel.checkpoint()

    assert long_turns(main) == [{"seconds": 0.25, "api": "dispatched", "request_seconds": 0.2}]


def test_a_long_turn_names_no_request_of_an_earlier_turn_and_none_that_ran_for_a_moment() -> None:
    """1."""

    async def main(watch: TurnWatch, jump: Jump) -> None:
        ran(Request("earlier"), 0.09)
        await trio.lowlevel.checkpoint()
        jump(0.2)
        ran(Request("momentary"), NOTED_SECONDS)
        await trio.lowlevel.checkpoint()

    assert long_turns(main) == [{"seconds": 0.2}]


def test_a_long_text_of_a_peer_is_cut() -> None:
    async def main(watch: TurnWatch, jump: Jump) -> None:
        await trio.lowlevel.checkpoint()
        jump(0.2)
        ran(Request("x" * 1_000), 0.2)
        await trio.lowlevel.checkpoint()

    assert long_turns(main)[0]["api"] == "x" * TEXT_CHARACTERS_MAX


def test_a_task_that_a_request_starts_does_not_run_in_its_name() -> None:
    """2."""

    async def main(watch: TurnWatch, jump: Jump) -> None:
        async with trio.open_nursery() as nursery:

            async def starts() -> None:
                nursery.start_soon(steps, jump, 0, 0.2)

            nursery.start_soon(work_for, Request("starts"), starts)

    assert long_turns(main) == [{"seconds": 0.2}]


def test_an_error_of_the_work_ends_its_request() -> None:
    async def fails() -> None:
        raise ValueError("of the work")

    async def main(watch: TurnWatch, jump: Jump) -> None:
        with pytest.raises(ValueError, match="of the work"):
            await work_for(Request("fails"), fails)

    assert long_turns(main) == []


def test_work_is_cancelled_and_hands_on_what_it_waits_for() -> None:
    found: list[object] = []

    async def waits(receive: trio.MemoryReceiveChannel[str]) -> None:
        found.append(await receive.receive())
        try:
            await trio.sleep_forever()
        finally:
            found.append("cancelled")

    async def main(watch: TurnWatch, jump: Jump) -> None:
        send, receive = trio.open_memory_channel[str](1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work_for, Request("waits"), waits, receive)
            await send.send("item")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    assert long_turns(main) == []
    assert found == ["item", "cancelled"]
