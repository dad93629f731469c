"""Measures the turns of the event loop, and logs the long ones.

A turn is the time between two waits for input: all tasks that can run do so, and all sockets with input are served.
Input that arrives meanwhile waits until the turn ends. Servers log the request (`long_request`) or the call
(`long_call`) that held the loop for longer than LONG_SECONDS by itself.
"""

from __future__ import annotations

import trio

from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Histogram

LONG_SECONDS = 0.1
"""A longer turn is logged."""


class TurnWatch(trio.abc.Instrument):
    """The turns of the Trio run that makes it.

    Attributes:
        seconds: the lengths of all turns.
    """

    def __init__(self, log: Logger) -> None:
        """Long turns are written to `log`."""
        self.seconds = Histogram()
        self._log = log
        self._clock = trio.lowlevel.current_clock().current_time
        self._began = self._clock()
        trio.lowlevel.add_instrument(self)

    def after_io_wait(self, timeout: float) -> None:
        """Trio calls this when a turn begins."""
        self._began = self._clock()

    def before_io_wait(self, timeout: float) -> None:
        """Trio calls this when a turn has ended."""
        took = self._clock() - self._began
        self.seconds.observe(took)
        if took > LONG_SECONDS:
            self._log.warning("long_turn", seconds=round(took, 3))
