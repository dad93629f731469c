"""Turns of the event loop: their lengths, and the log of the long ones."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.loop.turn_watch import LONG_SECONDS, TurnWatch


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
