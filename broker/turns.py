"""The turns of one broker: what one event made ready leaves at its end, together.

1. Whoever waits at the end of a log that moved is told once a turn, however much was appended.
2. Then the replies leave, many to a system call.
3. Where no store of this process tells that it has reported all, the network ends the turns.
"""

from __future__ import annotations

from collections.abc import Callable

from gnomon.broker.partition.readable import Readable
from gnomon.runtime.world import Network


class Turns:
    """What is ready to leave, and who is told when it does."""

    def __init__(self, network: Network) -> None:
        self.flush_replies: Callable[[], None] = lambda: None
        """Of the front end: sends the replies that were made with `flush=False`."""
        self.by_network = False
        """Whether the outcomes of appends come from bookies elsewhere, not from a store that says when it told all."""
        self._network = network
        self._end_due = False
        self._advanced: dict[Readable, None] = {}

    def advanced(self, partition: Readable) -> None:
        """Who waits at this partition is to be told at the end of the turn."""
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
        """A group of commits was reported whole, or a partition opened or failed: what that made ready leaves now."""
        while self._advanced:
            partition, _ = self._advanced.popitem()
            partition.wake_waiters()
        self.flush_replies()
