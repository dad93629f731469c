"""Many cheap deadlines served by one task.

1. A callback runs at or after its deadline, never before. Callbacks run in the order of their deadlines; those with
   equal deadlines run in the order in which `call_at` was called for them.
2. A cancelled timer never runs; a timer runs at most once.
3. Memory follows the live timers: cancelled ones are removed once they are more than 64 and the majority.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import trio

from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Clock

_SWEEP_MIN = 64


class Timer:
    """One deadline; made by `Timers.call_at`."""

    __slots__ = ("_timers", "callback", "deadline")

    def __init__(self, timers: Timers, deadline: float, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """The callback will not run. Idempotent, also after it ran."""
        if self.callback is not None:
            self.callback = None
            self._timers._forget_one()


class Timers:
    """Deadlines of one node: thousands of waiting fetches cost one sleeping task, and about 1 µs each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._cancelled = 0
        self._sleeping_until = float("inf")
        self._wake = Signal()

    def __len__(self) -> int:
        """Timers that will still run."""
        return len(self._heap) - self._cancelled

    def call_at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        """Runs `callback` once `clock.monotonic()` reaches `deadline` (seconds); it must not raise."""
        timer = Timer(self, deadline, callback)
        self._sequence += 1
        heapq.heappush(self._heap, (deadline, self._sequence, timer))
        if deadline < self._sleeping_until:
            self._sleeping_until = deadline
            self._wake.set()
        return timer

    @property
    def next_deadline(self) -> float:
        """No timer runs before this time; infinite if there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    async def run(self) -> None:
        """Serves the timers until it is cancelled; an exception of a callback passes through."""
        while True:
            self._sleeping_until = float("-inf")  # a timer that a callback adds need not wake this task
            self.run_due()
            self._wake.clear()
            self._sleeping_until = self.next_deadline
            with trio.move_on_after(max(0.0, self._sleeping_until - self._clock.monotonic())):
                await self._wake.wait()

    def run_due(self) -> None:
        """Runs the timers that are due now, in order; `run` does so by itself."""
        heap = self._heap
        now = self._clock.monotonic()
        while heap and heap[0][0] <= now:
            timer = heapq.heappop(heap)[2]
            callback = timer.callback
            if callback is None:
                self._cancelled -= 1
            else:
                timer.callback = None
                callback()

    def _forget_one(self) -> None:
        self._cancelled += 1
        if self._cancelled > _SWEEP_MIN and self._cancelled * 2 > len(self._heap):
            # In place: a callback of `run_due` may cause this sweep, and `run_due` continues with the same list.
            self._heap[:] = [item for item in self._heap if item[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
