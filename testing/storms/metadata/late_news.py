"""A fault that any metadata service may have: watch events reach brokers and bookies late, while calls are answered.

    with late_news(simulation, rate=0.5, until=20.0):
        ...

Each batch of a watch is delayed with probability `rate`, by a second on average; later batches wait for it. By the
virtual second `until` all delayed batches have arrived, and no later one is delayed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Any

from gnomon.metadata.client import Revision, WatchBatch
from gnomon.metadata.remote import RemoteMetadata
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.patches import Patches

LATE = "fault/late news"
"""A counter that a sweep has to reach."""


@contextmanager
def late_news(simulation: Simulation, rate: float, until: float) -> Iterator[None]:
    """Delays the batches of watches that begin during the block."""
    stream = simulation.random("late news")

    def watch(before: Callable[..., AbstractAsyncContextManager[AsyncIterator[WatchBatch]]]) -> Any:
        @asynccontextmanager
        async def late(
            metadata: RemoteMetadata, prefix: str, from_revision: Revision
        ) -> AsyncIterator[AsyncIterator[WatchBatch]]:
            async def held_up(batches: AsyncIterator[WatchBatch]) -> AsyncIterator[WatchBatch]:
                async for batch in batches:
                    left = until - simulation.clock.monotonic()
                    if left > 0 and stream.random() < rate:
                        simulation.coverage.count(LATE)
                        await metadata.clock.sleep(min(stream.expovariate(1.0), left))
                    yield batch

            async with before(metadata, prefix, from_revision) as batches:
                yield held_up(batches)

        return late

    with ExitStack() as stack:
        Patches(stack)(RemoteMetadata, "watch", watch)
        yield
