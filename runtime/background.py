"""A nursery for the background tasks of an open resource, such as a client's connection.

"The block" is the body of `async with background()`.

1. An exception of the block is raised as it is, even a group, a cancellation or a KeyboardInterrupt, if no background
   task fails.
2. An exception of a background task cancels the block, and is raised in an ExceptionGroup, as in Trio. The group also
   contains the exception of the block if there is one. No failure is swallowed.
3. If that group contains a KeyboardInterrupt, a plain KeyboardInterrupt is raised instead, with the group as its cause:
   chance decides which task an interrupt hits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled when the block ends; see the module's invariants."""
    of_block: BaseException | None = None
    of_tasks: BaseException | None = None
    try:
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            try:
                yield nursery
            except BaseException as error:
                of_block = error  # Trio would put it into a group: it is raised below
            nursery.cancel_scope.cancel()
    except BaseException as error:
        of_tasks = error
    failure = _without_cancellations(of_tasks)
    if failure is not None:
        raise _both(_without_cancellations(of_block), failure)
    if of_block is not None:
        raise of_block
    if of_tasks is not None:
        raise of_tasks


def _without_cancellations(error: BaseException | None) -> BaseException | None:
    """The failures in `error` without cancellations; None if there are none."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1]
    return None if isinstance(error, trio.Cancelled) else error


def _both(of_block: BaseException | None, of_tasks: BaseException) -> BaseException:
    """The error to raise when background tasks failed, with or without an error of the block."""
    assert isinstance(of_tasks, BaseExceptionGroup), "a nursery raises groups"
    if of_block is not None:
        text = "a block and its background tasks failed"
        of_tasks = BaseExceptionGroup(text, (of_block, *of_tasks.exceptions))
    interrupts = of_tasks.subgroup(KeyboardInterrupt)
    if interrupts is None:
        return of_tasks
    interrupt = KeyboardInterrupt()
    interrupt.__cause__ = of_tasks
    return interrupt
