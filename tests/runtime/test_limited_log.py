"""Lines that peers can cause (numbers: invariants of `limited_log`)."""

from __future__ import annotations

import trio
import trio.testing

from gnomon.runtime.limited_log import LINES_MAX, PERIOD_SECONDS, SUBJECTS_MAX, TEXT_CHARACTERS_MAX, LimitedLog
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.timers import Timers
from gnomon.runtime.trio_world import TrioClock


class Lines(SilentLogger):
    """Keeps the fields of warnings."""

    def __init__(self) -> None:
        self.fields: list[dict[str, object]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.fields.append({"event": event, **fields})


class HandClock:
    """A clock that a test sets."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the log does not wait")


def test_the_lines_of_one_subject_are_limited_and_the_rest_is_told_as_a_number() -> None:
    """1."""
    lines, clock = Lines(), HandClock()
    limited = LimitedLog(lines, clock)
    for number in range(10):
        limited.warn_limited("refused", "a", number=number)
    limited.warn_limited("refused", "b", number=10)
    assert [field["number"] for field in lines.fields] == [*range(LINES_MAX), 10]
    limited.flush()
    assert limited.pending, "the period has not ended"
    clock.now = PERIOD_SECONDS
    limited.flush()
    assert lines.fields[-1] == {"event": "refused", "number": 9, "more": 10 - LINES_MAX}
    assert not limited.pending
    limited.warn_limited("refused", "a", number=11)
    assert lines.fields[-1] == {"event": "refused", "number": 11}


def test_the_events_of_one_subject_are_limited_each_by_itself() -> None:
    """1."""
    lines = Lines()
    limited = LimitedLog(lines, HandClock())
    for event in ("refused", "slow"):
        for _ in range(LINES_MAX + 1):
            limited.warn_limited(event, "a")
    assert [field["event"] for field in lines.fields] == ["refused"] * LINES_MAX + ["slow"] * LINES_MAX


def test_many_subjects_share_the_limit_of_one() -> None:
    """2."""
    lines = Lines()
    limited = LimitedLog(lines, HandClock())
    for number in range(3 * SUBJECTS_MAX):
        limited.warn_limited("refused", str(number))
    assert len(lines.fields) == SUBJECTS_MAX + LINES_MAX


def test_a_long_text_is_cut() -> None:
    """3."""
    lines = Lines()
    LimitedLog(lines, HandClock()).warn_limited("refused", "a", client="c" * 30_000, number=7)
    assert lines.fields == [{"event": "refused", "client": "c" * TEXT_CHARACTERS_MAX, "number": 7}]


def test_with_timers_the_number_of_left_out_lines_is_written_at_the_end_of_each_period() -> None:
    """1."""
    lines = Lines()

    async def main() -> None:
        clock = TrioClock()
        timers = Timers(clock)
        limited = LimitedLog(lines, clock, timers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            for seconds in (0, PERIOD_SECONDS, PERIOD_SECONDS / 2):
                await trio.sleep(seconds)
                for _ in range(LINES_MAX + 2):
                    limited.warn_limited("refused", "a")
            await trio.sleep(2 * PERIOD_SECONDS)
            assert not limited.pending
            assert not len(timers)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    told = [int(str(field.get("more", 1))) for field in lines.fields]
    assert sum(told) == 3 * (LINES_MAX + 2)
    assert len(told) < 3 * (LINES_MAX + 2)
