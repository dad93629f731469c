"""Recompresses long batches outside of the event loop, one batch of the broker at a time."""

from __future__ import annotations

import trio

from gnomon.broker.partition.recoding import recoded
from gnomon.runtime.world import World


class Recoder:
    """The thread of one broker in which batches are recompressed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._one_at_a_time = trio.Lock()

    async def recode(self, batch: memoryview, codec: int, batch_bytes_max: int) -> memoryview:
        """`recoded` in the thread; the batch stays unchanged until the end of the call."""
        async with self._one_at_a_time:
            return await self._world.blocking(recoded, batch, codec, batch_bytes_max)
