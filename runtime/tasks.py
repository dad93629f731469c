"""The tasks of one component, such as a server: they live as long as the component's `run`.

1. No task starts after `run` has begun to end: a callback that comes while the process stops starts nothing.
2. An error that a task raises ends `run`, which raises it as a Trio nursery does.
3. Once the block of `open_tasks` has ended, all of its tasks have. So code after the block may close what they use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVarTuple, Unpack

import trio

Args = TypeVarTuple("Args")


class Tasks(Protocol):
    """A place to start tasks: a nursery, or the tasks of one component."""

    def start_soon(self, work: Callable[[Unpack[Args]], Awaitable[object]], /, *args: *Args) -> None:
        """Starts a task."""


class OwnTasks:
    """The tasks of one component; the first can be started once `run` is running."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._over = False

    def start_soon(self, work: Callable[[Unpack[Args]], Awaitable[object]], /, *args: *Args) -> None:
        """Starts a task; does nothing once `run` has ended."""
        if not self._over:
            assert self._nursery is not None, "the part that starts a task does not run yet"
            self._nursery.start_soon(work, *args)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Holds the tasks until it is cancelled; start it with `nursery.start`."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._over = True


@asynccontextmanager
async def open_tasks() -> AsyncIterator[OwnTasks]:
    """Tasks that are cancelled at the end of the block, and have ended when the `async with` statement returns."""
    tasks = OwnTasks()
    async with trio.open_nursery() as nursery:
        await nursery.start(tasks.run)
        try:
            yield tasks
        finally:
            nursery.cancel_scope.cancel()
