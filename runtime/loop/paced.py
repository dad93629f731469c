"""Long loops that let other tasks and threads run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from gnomon.runtime.world import Clock

PAUSE_SECONDS = 0.001
"""The pause between two turns of a loop. A thread, as the one that commits, then gets the interpreter's lock at once;
from a loop that only yields to other tasks it gets the lock after 5 ms, each time that it needs it."""

T = TypeVar("T")


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
