"""The bound of a broker's work for subscriptions in each turn of the event loop, for all partitions together.

1. A turn spends at most UNITS_PER_TURN, plus the rest of the act that crosses this bound.
2. Work that finds no units left continues in a later turn, in the order in which it was put off. All other tasks of the
   broker run before that.
3. New work does not begin while other work waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gnomon.broker.subscriptions.allowance import Allowance
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock

UNITS_PER_TURN = 2_000
"""About 1 to 2 ms; the act that crosses the bound takes at most 5 ms."""
PAUSE_SECONDS = 0.0


class Rounds(Allowance):
    """The allowance of one broker, and the work that waits for it."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        super().__init__(UNITS_PER_TURN)
        self._clock = clock
        self._timers = timers
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def open(self) -> bool:
        """Whether work may begin now."""
        return self.left > 0 and not self._waiting

    def put_off(self, work: Callable[[], None]) -> None:
        """Runs `work` in a later turn; `work` calls this again if it has more to do."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._set_timer()

    def _set_timer(self) -> None:
        self._timers.call_at(self._clock.monotonic() + PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self.left = UNITS_PER_TURN
        for _ in range(len(self._waiting)):
            if self.left <= 0:
                break
            self._waiting[0]()
            self._waiting.popleft()
        if self._waiting:
            self._set_timer()
