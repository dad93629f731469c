"""Calls from any thread into a thread that runs Trio."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from gnomon.runtime.trio_thread import in_trio_thread

INTERRUPT_SECONDS = 0.1
NOTICED_SECONDS_MAX = 10.0


class Ended(Exception):
    """Raised by a call after the end of the block."""


class Interrupted(Exception):
    """The exception of a signal handler."""


@asynccontextmanager
async def block() -> AsyncIterator[None]:
    yield


def test_a_call_whose_thread_is_interrupted_is_cancelled() -> None:
    cancelled = trio.Event()

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async def noticed() -> None:
        with trio.fail_after(NOTICED_SECONDS_MAX):
            await cancelled.wait()

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with in_trio_thread(block(), "tested", Ended) as (_, thread):
            signal.setitimer(signal.ITIMER_REAL, INTERRUPT_SECONDS)
            with pytest.raises(Interrupted):
                thread.call(work)
            thread.call(noticed)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_call_raises_the_error_of_its_work_and_the_next_call_works() -> None:
    async def work(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return number

    with in_trio_thread(block(), "tested", Ended) as (_, thread):
        with pytest.raises(ValueError, match="-1"):
            thread.call(work, -1)
        assert thread.call(work, 1) == 1
    with pytest.raises(Ended):
        thread.call(work, 1)
