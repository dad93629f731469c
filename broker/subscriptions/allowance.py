"""The bound of the work for subscriptions in one turn of the event loop. Pure.

1. Every act (a step of work, such as giving a batch to a reader) spends its price, in units of about half a
   microsecond. Work that can wait stops when no units are left.
2. An act is never interrupted, so it may spend more than is left.
"""

from __future__ import annotations

UNLIMITED = 1 << 62


class Allowance:
    """The units left in this turn; `Rounds` renews them."""

    def __init__(self, left: int = UNLIMITED) -> None:
        self.left = left

    def spend(self, units: int) -> None:
        """Subtracts the price of an act."""
        self.left -= units
