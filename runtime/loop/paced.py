"""Long loops that let other tasks run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import trio

T = TypeVar("T")


async def paced(items: Iterable[T], per_turn: int) -> AsyncIterator[T]:
    """The items, `per_turn` of them in each turn of the event loop."""
    for number, item in enumerate(items):
        if number and number % per_turn == 0:
            await trio.lowlevel.checkpoint()
        yield item
