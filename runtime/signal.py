"""A signal: wakes the tasks that wait for it, any number of times (a `trio.Event` does so once)."""

from __future__ import annotations

import trio


class Signal:
    """Made once by its owner.

    There are two ways to use it. A task that checks a condition, then waits, then checks again is woken by `notify`. A
    task that may be busy when the signal comes calls `clear` before it works; `set` then makes its next `wait` return
    at once.
    """

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: trio.Event | None = None  # made when a task waits: most of the many signals have no waiter

    def notify(self) -> None:
        """Wakes all tasks that wait now; has no effect on later calls of `wait`."""
        if self._event is not None:
            event, self._event = self._event, None
            event.set()

    def set(self) -> None:
        """Wakes all tasks that wait now; until `clear`, later calls of `wait` return at once."""
        self._is_set = True
        self.notify()

    def clear(self) -> None:
        """Undoes `set` for later calls of `wait`."""
        self._is_set = False

    def is_set(self) -> bool:
        """Whether `wait` returns at once."""
        return self._is_set

    async def wait(self) -> None:
        """Waits for `notify` or `set`; a checkpoint in any case."""
        if self._is_set:
            await trio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()
