"""Which subscriptions of a partition have missed records, and who is still to be told.

1. Where records went that a subscription had not acknowledged, its consumers are told, and those who come next, on
   whatever broker, until it has acknowledged something behind them: who has gone unnoticed may not have heard it. Until
   then its stored position stays where it was.
"""

from __future__ import annotations

from collections.abc import Iterable

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
        """By subscription, what it may not have been told."""

    def loaded(self, subscriber: str, stored: Dlsn, offset: Offset, cut: Cut | None) -> None:
        """A subscription goes on at `offset`, and was stored at `stored`, which may have been cut off meanwhile.

        Args:
            cut: the last one of the log, read after `offset` was found.
        """
        if cut is not None and cut.offset <= self._log.start_offset and stored < Dlsn(*cut[:3]):
            self._untold[subscriber] = (Offset(min(stored.segment, offset)), offset)

    def tell_loaded(self, subscribers: Iterable[str]) -> None:
        """Logs what has been missed of those that were loaded."""
        names = [name for name in subscribers if name in self._untold]
        if names:
            self._tell_jumped(names, self._log.start_offset)

    def forget(self, subscriber: str) -> None:
        """A subscription has acknowledged what came next, was moved or deleted: nobody has to be told any more."""
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
            self._untold[subscription.name] = (self._untold.get(subscription.name, (first, end))[0], end)
            for consumer in subscription.consumers:
                assert isinstance(consumer.link, DeliveringLink)
                told.setdefault((consumer.link, first), []).append(consumer)
        for (link, first), consumers in told.items():
            link.tell_missed(consumers, first, end)

    def attached(self, consumer: Consumer) -> None:
        """A consumer has come: it is told what its subscription has missed."""
        missed = self._untold.get(consumer.subscription.name)
        if missed is not None:
            assert isinstance(consumer.link, DeliveringLink)
            consumer.link.tell_missed([consumer], *missed)

    def _tell_jumped(self, names: list[str], end: Offset) -> None:
        self._logger.warning(
            "subscriptions_jumped",
            names=names[:NAMES_TOLD],
            count=len(names),
            to_offset=end,
            meaning="records went that they had not acknowledged",
        )
