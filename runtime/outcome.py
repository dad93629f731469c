"""Waiting for what a call reports to a callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import trio

from gnomon.runtime.world import Environment, WorldError

T = TypeVar("T")


async def outcome_of(start: Callable[[Callable[[T | None, Exception | None], None]], object]) -> T:
    """Calls `start(done)` and waits for `done(result, None)` or `done(None, error)`; cancelled, it is unknown which.

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


async def committed(environment: Environment, operation: Callable[[Any], T]) -> T:
    """`Environment.commit` of every world: submits an operation and waits; raises as that says."""
    try:
        return await outcome_of(lambda done: environment.submit(operation, done))
    except WorldError as error:
        raise type(error)(str(error)) from error  # one error answers a whole group: each caller raises its own
