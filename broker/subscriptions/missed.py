"""Which subscriptions of a partition have missed records, and who is still to be told.

1. Where records went that a subscription had not acknowledged, its consumers are told; if it has none, those are told
   who come next, on whatever broker: until then its stored position stays where it was.
"""

from __future__ import annotations

from gnomon.broker.partition.cut import Cut
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.log_reader import LogBounds
from gnomon.broker.subscriptions.delivering_link import DeliveringLink
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.subscription import Consumer
from gnomon.runtime.logs import Logger

NAMES_TOLD = 10
"""Subscriptions named in a line of the log."""


class Missed:
    """See the module."""

    def __init__(self, dispatcher: Dispatcher, log: LogBounds, logger: Logger) -> None:
        """Nobody has missed anything."""
        self._dispatcher = dispatcher
        self._log = log
        self._logger = logger
        self._start_offset = log.start_offset
        self._untold: dict[str, tuple[Offset, Offset]] = {}
        """By subscription, what nobody of it was told yet."""

    def loaded(self, subscriber: str, stored: Dlsn, offset: Offset, cut: Cut | None) -> None:
        """A subscription goes on at `offset`, and was stored at `stored`, which may have been cut off meanwhile.

        Args:
            cut: the last one of the log, read after `offset` was found.
        """
        if cut is not None and cut.offset <= self._log.start_offset and stored < Dlsn(*cut[:3]):
            self._untold[subscriber] = (Offset(min(stored.segment, offset)), offset)

    def tell_loaded(self) -> None:
        """Logs what has been missed of those that were loaded."""
        if self._untold:
            self._tell_jumped(list(self._untold), self._log.start_offset)

    def forget(self, subscriber: str) -> None:
        """A subscription was moved or deleted: nobody has to be told."""
        self._untold.pop(subscriber, None)

    def look(self) -> None:
        """The log may begin later now: tells those who have missed something, or keeps it for who comes."""
        end = self._log.start_offset
        if end <= self._start_offset:
            return
        self._start_offset = end
        jumped = self._dispatcher.trimmed(end)
        if not jumped:
            return
        self._tell_jumped([subscription.name for subscription, _ in jumped], end)
        told: dict[tuple[DeliveringLink, Offset], list[Consumer]] = {}
        for subscription, first in jumped:
            if not subscription.consumers:
                self._untold[subscription.name] = (self._untold.get(subscription.name, (first, end))[0], end)
            for consumer in subscription.consumers:
                assert isinstance(consumer.link, DeliveringLink)
                told.setdefault((consumer.link, first), []).append(consumer)
        for (link, first), consumers in told.items():
            link.tell_missed(consumers, first, end)

    def attached(self, consumer: Consumer) -> None:
        """A consumer has come: it is told what its subscription has missed, if nobody was."""
        missed = self._untold.pop(consumer.subscription.name, None)
        if missed is not None:
            assert isinstance(consumer.link, DeliveringLink)
            consumer.link.tell_missed([consumer], *missed)
            self._dispatcher.dirty[consumer.subscription] = None

    def _tell_jumped(self, names: list[str], end: Offset) -> None:
        self._logger.warning(
            "subscriptions_jumped",
            names=names[:NAMES_TOLD],
            count=len(names),
            to_offset=end,
            meaning="records went that they had not acknowledged",
        )
