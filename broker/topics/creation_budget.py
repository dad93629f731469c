"""Topics that clients may create by asking for them: many at once, and a rate after them. Pure.

1. Between two times, a budget grants at most `burst` topics, and `per_second` for each second between them.
2. A topic is granted by all of its budgets, or takes nothing from any.
"""

from __future__ import annotations

from typing import Final

CONNECTION_BURST: Final = 100
CONNECTION_PER_SECOND: Final = 10
"""A producer that writes to 500 new topics at once has them before its `max.block.ms` (60 s) is over."""
BROKER_BURST: Final = 1_000
BROKER_PER_SECOND: Final = 50


class CreationBudget:
    """The topics that may be created now."""

    __slots__ = ("_at", "_burst", "_left", "_per_second")

    def __init__(self, burst: int, per_second: float, now: float) -> None:
        """A whole `burst` at the time `now`, in seconds."""
        self._burst, self._per_second = burst, per_second
        self._left, self._at = float(burst), now

    def _refill(self, now: float) -> float:
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        return self._left

    @staticmethod
    def take(now: float, *budgets: CreationBudget) -> bool:
        """Whether one more topic may be created at the time `now`; then it is taken from each budget."""
        if any(budget._refill(now) < 1 for budget in budgets):
            return False
        for budget in budgets:
            budget._left -= 1
        return True
