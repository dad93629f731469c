"""The share of a turn of the event loop that the requests of one stream may take.

A peer may send many requests at once, each of which is handled within the turn. A handler asks after each request
whether its share is spent; then it continues in the next turn (`Connection.call_next_turn`), after other streams.
"""

from __future__ import annotations

from typing import Final

SHARE_SECONDS: Final = 0.002
"""With one more request, which takes up to 8 ms, a turn stays below 10 ms."""
GAP_SECONDS: Final = 0.0005
"""Work that begins sooner after the end of other work counts to the same turn: a stream is read several times in one.
"""


class TurnShare:
    """The share of one stream; times are monotonic seconds."""

    __slots__ = ("_until", "_worked_at")

    def __init__(self) -> None:
        self._until = self._worked_at = float("-inf")

    def begin(self, now: float) -> None:
        """Work begins, perhaps in a new turn."""
        if now - self._worked_at > GAP_SECONDS:
            self._until = now + SHARE_SECONDS

    def is_spent(self, now: float) -> bool:
        """A request was handled; whether the next one has to wait for the next turn."""
        self._worked_at = now
        return now > self._until

    def renew(self, now: float) -> None:
        """The next turn has come."""
        self._until = now + SHARE_SECONDS
