"""The turns of a broker's event loop: the results of one event leave together, at the end of the event's turn.

1. A waiter at the end of a log that moved is notified once a turn, however much was appended.
2. The replies are sent after these notifications, many in one system call.
3. A store in this process ends a turn after each group of commits. If the bookies are elsewhere (`by_network`), the
   network ends the turns.
"""

from __future__ import annotations

from collections.abc import Callable

from gnomon.broker.partition.readable import Readable
from gnomon.runtime.world import Network


class Turns:
    """The logs that moved in this turn, and the replies that are ready to leave."""

    def __init__(self, network: Network, *, by_network: bool) -> None:
        """No turn has begun.

        Args:
            by_network: the outcomes of appends come from bookies elsewhere, and not from a store that ends the turn.
        """
        self.by_network = by_network
        self._network = network
        self._flushes: list[Callable[[], None]] = []
        self._end_due = False
        self._advanced: dict[Readable, None] = {}

    def at_end(self, flush: Callable[[], None]) -> None:
        """Has `flush` called at the end of each turn: it sends the replies that a front end has ready."""
        self._flushes.append(flush)

    def advanced(self, partition: Readable) -> None:
        """The waiters at this partition are notified at the end of the turn."""
        self._advanced[partition] = None
        if self.by_network:
            self.began()

    def began(self) -> None:
        """Something is ready to leave, and no store of this process ends the turn: the network does."""
        if not self._end_due:
            self._end_due = True
            self._network.call_soon(self._end)

    def _end(self) -> None:
        self._end_due = False
        self.ended()

    def ended(self) -> None:
        """A group of commits was reported whole, or a partition opened or failed: the results leave now."""
        while self._advanced:
            partition, _ = self._advanced.popitem()
            partition.wake_waiters()
        for flush in self._flushes:
            flush()
