"""Cancels a call between any two steps of any task, in the caller and in the broker.

    for step in itertools.count():
        if not await cancelled_at(step, consumer.close):
            break  # the call ended before this step
        ...  # assert what holds after the cancellation

A step is the work of one Trio task between two of its checkpoints. The tasks of caller and broker are in one Trio run,
so counting the steps of all tasks reaches each intermediate state of a call, at the caller and at the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from trio.abc import Instrument


class _AfterSteps(Instrument):
    """Cancels a scope after a number of steps of the run."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self._passed = 0
        self._steps = steps
        self._scope = scope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        if self._passed == self._steps:
            self._scope.cancel()
        self._passed += 1


async def cancelled_at(step: int, call: Callable[[], Awaitable[object]]) -> bool:
    """Runs `call` and cancels it after `step` steps; raises as `call`.

    Returns:
        Whether the call was cancelled; False if it ended before, or had no checkpoint after the cancellation.
    """
    scope = trio.CancelScope()
    instrument = _AfterSteps(step, scope)
    trio.lowlevel.add_instrument(instrument)
    try:
        with scope:
            await call()
    finally:
        trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught
