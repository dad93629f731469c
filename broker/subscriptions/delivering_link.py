"""A connection as a hosted partition needs it: what is given goes out there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.dispatcher import Part
from gnomon.broker.subscriptions.reading import Batch
from gnomon.broker.subscriptions.subscription import Consumer, Link


class DeliveringLink(Link, ABC):
    """A connection that takes deliveries."""

    @abstractmethod
    def deliver(self, batch: Batch, parts: Sequence[Part]) -> None:
        """Sends a batch, once for all consumers of the connection that get something of it."""

    @abstractmethod
    def let_go(self, consumers: Sequence[Consumer], *, to_return: bool) -> None:
        """Forgets consumers, which are not attached any more, and may tell them to come back."""

    @abstractmethod
    def tell_missed(self, consumers: Sequence[Consumer], first: Offset, end: Offset) -> None:
        """Tells consumers that records below `end` went unacknowledged; none of them was below `first`."""
