"""The numbers of a client's operations on one partition of a table. Pure.

1. Each operation has its own number, in all of its attempts. So the leader does it once, however often it arrives.
2. The lowest number without an answer is sent with each operation: the leader forgets those below it.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from gnomon.client.protocol import OUTSTANDING_MAX


class OperationNumbers:
    """The numbers from 0 on."""

    def __init__(self) -> None:
        """No operation was begun."""
        self._next = 0
        self._open: list[int] = []
        """The numbers without an answer, in order."""

    @property
    def answered_below(self) -> int:
        """All operations with lower numbers have their answers."""
        return self._open[0] if self._open else self._next

    @property
    def has_room(self) -> bool:
        """Whether another operation may begin: a leader keeps a limited range of numbers."""
        return self._next - self.answered_below < OUTSTANDING_MAX

    def begin(self) -> int:
        """The number of a new operation."""
        number = self._next
        self._next += 1
        insort(self._open, number)
        return number

    def end(self, number: int) -> None:
        """The operation has its answer, or nobody waits for it any more."""
        del self._open[bisect_left(self._open, number)]
