"""Calls that share a bounded part of each turn of the event loop.

1. As long as the calls since the last pause took less than SHARE_SECONDS, a call runs at once. Then the calls queue,
   and go on after a pause in which others have their turn.
2. A call whose stream has a share of its own (`turn_share`) runs at once unless calls of its owner wait before it.
3. Those of an owner, as of a table, run in their order. Owners take turns: the many calls of one delay those of others
   by one call each.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.loop.turn_share import SHARE_SECONDS
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock


class PacedCalls:
    """The calls of one component."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        """No call was made."""
        self._clock = clock
        self._tasks = tasks
        self._queues: OrderedDict[object, deque[Callable[[], None]]] = OrderedDict()
        """The calls that wait, by their owner; that of the next one is the first."""
        self._pausing = False
        self._spent_seconds = 0.0

    def run(self, owner: object, call: Callable[[], None]) -> None:
        """Runs a call now, or in a later turn after those of its owner that wait."""
        if self._pausing:
            self._wait(owner, call)
            return
        spent_before, began = self._spent_seconds, self._clock.monotonic()
        call()  # may run others
        self._spent_seconds = spent_before + self._clock.monotonic() - began
        if self._spent_seconds >= SHARE_SECONDS and not self._pausing:
            self._pause()

    def run_shared(self, owner: object, call: Callable[[], None]) -> None:
        """Runs a call of a stream with a share of its own (invariant 2)."""
        if owner in self._queues:
            self._wait(owner, call)
        else:
            call()

    def _wait(self, owner: object, call: Callable[[], None]) -> None:
        self._queues.setdefault(owner, deque()).append(call)

    def _pause(self) -> None:
        self._pausing = True
        self._tasks.start_soon(self._go_on)

    async def _go_on(self) -> None:
        while True:
            await self._clock.sleep(PAUSE_SECONDS)
            began, self._spent_seconds = self._clock.monotonic(), 0.0
            while self._queues:
                self._run_next()
                self._spent_seconds = self._clock.monotonic() - began
                if self._spent_seconds >= SHARE_SECONDS:
                    break
            if not self._queues:
                self._pausing = False
                return

    def _run_next(self) -> None:
        owner, queue = self._queues.popitem(last=False)
        call = queue.popleft()
        if queue:
            self._queues[owner] = queue
        call()
