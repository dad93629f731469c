"""Calls of a store that run in the background of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from gnomon.metadata.client import (
    MetadataError,
    Revision,
    WatchBatch,
)
from gnomon.metadata.embedded import EmbeddedMetadata


class Asked:
    """A call in the background, and its outcome after it has ended."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: MetadataError | None = None
        self.answered = False

    async def run(self, call: Awaitable[Any]) -> None:
        try:
            self.result = await call
        except MetadataError as error:
            self.error = error
        self.answered = True


@asynccontextmanager
async def calls() -> AsyncIterator[Callable[[Awaitable[Any]], Any]]:
    """Starts calls in the order of the requests; cancels the unanswered ones at the end of the block."""
    async with trio.open_nursery() as nursery:

        async def start(call: Awaitable[Any]) -> Asked:
            asked = Asked()
            nursery.start_soon(asked.run, call)
            await wait_all_tasks_blocked()
            return asked

        yield start
        nursery.cancel_scope.cancel()


async def taken(metadata: EmbeddedMetadata, from_revision: int, count: int) -> list[WatchBatch]:
    async with metadata.watch("", Revision(from_revision)) as watch:
        return [await anext(watch) for _ in range(count)]
