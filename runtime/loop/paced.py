"""Long loops, and many tasks that start at once, let other tasks and threads run."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar, TypeVarTuple, Unpack

from gnomon.runtime.loop.turn_share import SHARE_SECONDS
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock

PAUSE_SECONDS = 0.001
"""The pause between two turns of a loop. A thread, as the one that commits, then gets the interpreter's lock at once;
from a loop that only yields to other tasks it gets the lock after 5 ms, each time that it needs it."""

STEPS_PER_TURN: Final = 20

T = TypeVar("T")
Args = TypeVarTuple("Args")


async def paced(
    items: Iterable[T], per_turn: int, clock: Clock, weight: Callable[[T], int] = lambda item: 1
) -> AsyncIterator[T]:
    """The items; in each turn of the event loop so many that their weights reach `per_turn`."""
    room = per_turn
    for item in items:
        if room <= 0:
            await clock.sleep(PAUSE_SECONDS)
            room = per_turn
        yield item
        room -= weight(item)


async def in_turns(steps: Iterable[None], clock: Clock) -> None:
    """Does as many steps in each turn of the event loop as its share allows, and at most STEPS_PER_TURN."""
    number, until = 0, clock.monotonic() + SHARE_SECONDS
    for _ in steps:
        number += 1
        if number >= STEPS_PER_TURN or clock.monotonic() >= until:
            await clock.sleep(PAUSE_SECONDS)
            number, until = 0, clock.monotonic() + SHARE_SECONDS


class PacedTasks:
    """Starts at most `per_turn` tasks in one turn of the event loop; the others follow in order."""

    def __init__(self, tasks: Tasks, per_turn: int, clock: Clock) -> None:
        """All tasks are started in `tasks`."""
        self._tasks = tasks
        self._per_turn = per_turn
        self._clock = clock
        self._waiting: deque[Callable[[], Awaitable[object]]] = deque()

    def start_soon(self, work: Callable[[Unpack[Args]], Awaitable[object]], /, *args: *Args) -> None:
        """See `Tasks.start_soon`."""
        self._waiting.append(partial(work, *args))
        if len(self._waiting) == 1:
            self._tasks.start_soon(self._start)

    async def _start(self) -> None:
        async for work in paced(self._first(), self._per_turn, self._clock):
            self._tasks.start_soon(work)

    def _first(self) -> Iterator[Callable[[], Awaitable[object]]]:
        while self._waiting:
            yield self._waiting[0]
            self._waiting.popleft()
