"""Measures the turns of the event loop, and logs the long ones with the request that took most of each.

A turn is the time between two waits for input: all tasks that can run do so, and all sockets with input are served.
Input that arrives meanwhile waits until the turn ends. Servers also log the request (`long_request`) or the call
(`long_call`) that held the loop for longer than LONG_SECONDS by itself, before it waited for anything.

1. A long turn names the request with the longest run in it: a run is a request's dispatch, or one step of a task that
   works for it. A run of at most NOTED_SECONDS names nothing.
2. A task works for a request within `work_for`; tasks that it starts do not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Protocol, TypeVarTuple, Unpack

import trio

from gnomon.runtime.limited_log import cut
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Histogram

LONG_SECONDS: Final = 0.1
"""A longer turn is logged."""
NOTED_SECONDS: Final = 0.01
Args = TypeVarTuple("Args")


class NamedRequest(Protocol):
    """A request of a Kafka client, or a call of another process."""

    def named(self) -> dict[str, object]:
        """The fields of a log line that name the request, its peer and its client."""


class TurnWatch(trio.abc.Instrument):
    """The turns of the Trio run that makes it.

    Attributes:
        seconds: the lengths of all turns.
    """

    def __init__(self, log: Logger) -> None:
        """Long turns are written to `log`."""
        self.seconds = Histogram()
        self.clock = trio.lowlevel.current_clock().current_time
        self._log = log
        self._began = self.clock()
        self._longest_seconds = NOTED_SECONDS
        self._longest: NamedRequest | None = None
        trio.lowlevel.add_instrument(self)
        _WATCH.set(self)

    def after_io_wait(self, timeout: float) -> None:
        """Trio calls this when a turn begins."""
        self._began = self.clock()
        if self._longest is not None:
            self._longest_seconds, self._longest = NOTED_SECONDS, None

    def before_io_wait(self, timeout: float) -> None:
        """Trio calls this when a turn has ended."""
        took = self.clock() - self._began
        self.seconds.observe(took)
        if took > LONG_SECONDS:
            fields = {} if self._longest is None else cut(self._longest.named())
            if fields:
                fields["request_seconds"] = round(self._longest_seconds, 3)
            self._log.warning("long_turn", seconds=round(took, 3), **fields)

    def ran(self, request: NamedRequest, seconds: float) -> None:
        """A request ran for this long in this turn."""
        if seconds > self._longest_seconds:
            self._longest_seconds, self._longest = seconds, request


_WATCH: trio.lowlevel.RunVar[TurnWatch | None] = trio.lowlevel.RunVar("turn watch", default=None)


def ran(request: NamedRequest, seconds: float) -> None:
    """Notes a run of more than NOTED_SECONDS for the watch of this Trio run, if there is one."""
    watch = _WATCH.get()
    if watch is not None:
        watch.ran(request, seconds)


async def work_for(request: NamedRequest, work: Callable[[Unpack[Args]], Awaitable[object]], /, *args: *Args) -> None:
    """Does `work` within the running task, and names `request` for its steps."""
    watch = _WATCH.get()
    if watch is None:
        await work(*args)
    else:
        await _Steps(work(*args), request, watch)


class _Steps:
    """Awaits some work, and measures each of its steps: from one wait to the next."""

    def __init__(self, work: Awaitable[object], request: NamedRequest, watch: TurnWatch) -> None:
        self._work, self._request, self._watch = work, request, watch

    def __await__(self) -> Generator[Any, Any, None]:
        steps, clock = self._work.__await__(), self._watch.clock
        step: Callable[[Any], Any] = steps.send
        value: Any = None
        while True:
            began = clock()
            try:
                wait = step(value)
            except StopIteration:
                return
            finally:
                self._watch.ran(self._request, clock() - began)
            try:
                value, step = (yield wait), steps.send
            except BaseException as error:
                value, step = error, steps.throw
