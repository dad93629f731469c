"""The number of turns that work leaves to other tasks; and work that leaves none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class _Scheduled(trio.abc.Instrument):
    """Counts how often one task is made runnable again; costs no virtual time."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.count = 0
        self._task = task

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        self.count += task is self._task


async def turns_during(work: Awaitable[object]) -> int:
    """The number of times that `work` gave other tasks a turn."""
    scheduled = _Scheduled(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(scheduled)
    try:
        await work
    finally:
        trio.lowlevel.remove_instrument(scheduled)
    return scheduled.count


async def at_once(batch: memoryview, bytes_max: int, call: Callable[[memoryview, int], T], /) -> T:
    """A `RecordsThread` that is none."""
    return call(batch, bytes_max)
