"""A fault that any metadata service may show: brokers and bookies hear of changes late, while their calls are answered.

    with late_news(simulation, rate=0.5, until=20.0):
        ...

Each batch that a watch brings comes later, with this probability, by a second on average; those behind it wait. By the
virtual second `until` all have come, and nothing is late any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Any

from gnomon.metadata.client import Revision, WatchBatch
from gnomon.metadata.remote import RemoteMetadata
from gnomon.testing.patches import Patches
from gnomon.testing.simulation import Simulation

LATE = "fault/late news"
"""What a sweep has to reach."""


@contextmanager
def late_news(simulation: Simulation, rate: float, until: float) -> Iterator[None]:
    """Holds up what watches bring during the block."""
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
