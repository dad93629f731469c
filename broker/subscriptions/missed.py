"""The missed records of a partition's subscriptions, and the notifications of their consumers.

1. If records that a subscription has not acknowledged are deleted, its consumers are notified. Each consumer that
   attaches later, on any broker, is notified too, until the subscription acknowledges a record after the deleted ones:
   a notified consumer can vanish before it handles the notification. Until then the stored position of the subscription
   does not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from gnomon.broker.subscriptions.delivery_channel import DeliveryChannelT
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.subscription import AttachedConsumer
from gnomon.log.cut import Cut
from gnomon.log.entry import Offset
from gnomon.log.log_reader import LogBounds
from gnomon.runtime.logs import Logger

NAMES_LOGGED = 10
"""Subscriptions named in a log line."""


class Missed(Generic[DeliveryChannelT]):
    """The subscriptions of one partition that missed records, and the records that each missed."""

    def __init__(self, dispatcher: Dispatcher[DeliveryChannelT], log: LogBounds, logger: Logger) -> None:
        """The state in which no subscription has missed records."""
        self._dispatcher = dispatcher
        self._log = log
        self._logger = logger
        self._start_offset = log.start_offset
        self._unnotified: dict[str, tuple[Offset, Offset]] = {}
        """By subscription, the missed records [first, end) that its consumers may not know of."""

    def loaded(self, subscriber: str, stored: Offset, offset: Offset, cut: Cut | None) -> None:
        """Notes that a subscription with the stored position `stored`, which a cut may have passed, begins at `offset`.

        Args:
            cut: the last cut of the log.
        """
        if cut is not None and stored < cut.offset <= self._log.start_offset:
            self._unnotified[subscriber] = (stored, offset)

    def log_loaded(self, subscribers: Iterable[str]) -> None:
        """Logs the loaded subscriptions that missed records."""
        names = [name for name in subscribers if name in self._unnotified]
        if names:
            self._log_jumped(names, self._log.start_offset)

    def forget(self, subscriber: str) -> None:
        """Ends the notifications of a subscription: it acknowledged a later record, or was moved or deleted."""
        self._unnotified.pop(subscriber, None)

    def look(self) -> None:
        """Checks for a later start of the log, and notifies consumers that missed records, now or when they attach."""
        end = self._log.start_offset
        if end <= self._start_offset:
            return
        self._start_offset = end
        jumped = self._dispatcher.trimmed(end)
        if not jumped:
            return
        self._log_jumped([subscription.name for subscription, _ in jumped], end)
        notified: dict[tuple[DeliveryChannelT, Offset], list[int]] = {}
        for subscription, first in jumped:
            self._unnotified[subscription.name] = (self._unnotified.get(subscription.name, (first, end))[0], end)
            for consumer in subscription.consumers:
                notified.setdefault((consumer.channel, first), []).append(consumer.number)
        for (channel, first), numbers in notified.items():
            channel.notify_missed(numbers, first, end)

    def attached(self, consumer: AttachedConsumer[DeliveryChannelT]) -> None:
        """Notifies a new consumer of the records that its subscription missed."""
        missed = self._unnotified.get(consumer.subscription.name)
        if missed is not None:
            consumer.channel.notify_missed([consumer.number], *missed)

    def _log_jumped(self, names: list[str], end: Offset) -> None:
        self._logger.warning(
            "subscriptions_jumped",
            names=names[:NAMES_LOGGED],
            count=len(names),
            to_offset=end,
            meaning="records were deleted that these subscriptions had not acknowledged",
        )
