"""Stops a daemon or the work of a command on SIGTERM or SIGINT."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TypeVar

import trio

T = TypeVar("T")


async def stop_on_signal(stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Sets `stop` at each SIGTERM or SIGINT, until cancelled."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            stop.set()


def stopping_on_signals(work: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
    """Wraps `work` so that a SIGTERM or SIGINT ends it in good order."""

    async def run(given: T) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(_cancel_on_signal, nursery.cancel_scope)
            await work(given)
            nursery.cancel_scope.cancel()

    return run


async def _cancel_on_signal(
    scope: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()


def interrupt_on_sigterm() -> None:
    """Lets a SIGTERM interrupt a blocking command like a SIGINT."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
