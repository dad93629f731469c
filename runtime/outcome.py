"""Waits for an outcome that a callback reports, or for work that continues after its caller was cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import trio

from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Environment, WorldError

T = TypeVar("T")


async def outcome_of(start: Callable[[Callable[[T | None, Exception | None], None]], object]) -> T:
    """Calls `start(done)` and waits for `done(result, None)` or `done(None, error)`.

    After a cancellation the outcome is unknown.

    Returns:
        The result.

    Raises:
        Exception: the error.
    """
    answered = trio.Event()
    answer: list[tuple[T | None, Exception | None]] = []

    def done(result: T | None, error: Exception | None) -> None:
        answer.append((result, error))
        answered.set()

    start(done)
    await answered.wait()
    result, error = answer[0]
    if error is not None:
        raise error
    return cast(T, result)


async def finished(
    tasks: Tasks, lock: trio.Lock, work: Callable[[], Awaitable[T]], refusals: tuple[type[Exception], ...]
) -> T:
    """Does `work` under `lock`, as a task of `tasks`, and waits for it.

    A caller that is cancelled before the work has the lock cancels the work. Once the work has the lock it runs to its
    end, also without the caller: work of several steps never stops between two of them. A caller that is cancelled then
    does not know the outcome.

    Args:
        refusals: errors of the work that concern its caller alone. Any other error ends `tasks`.
    """
    waiting = trio.CancelScope()
    ended = trio.Event()
    values: list[T] = []
    refusal: Exception | None = None

    async def run() -> None:
        nonlocal refusal
        with waiting:
            await lock.acquire()
        if waiting.cancelled_caught:
            return
        try:
            values.append(await work())
        except refusals as error:
            refusal = error
        finally:
            lock.release()
            ended.set()

    tasks.start_soon(run)
    try:
        await ended.wait()
    finally:
        waiting.cancel()
    if refusal is not None:
        raise refusal
    return values[0]


async def committed(environment: Environment, operation: Callable[[Any], T]) -> T:
    """`Environment.commit` of every world: submits an operation and waits; raises the same errors."""
    try:
        return await outcome_of(lambda done: environment.submit(operation, done))
    except WorldError as error:
        raise type(error)(str(error)) from error  # one error is the answer to a whole group: each caller raises its own
