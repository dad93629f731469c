"""A native client's connection, as a hosted partition uses it: for deliveries and notifications. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from gnomon.broker.subscriptions.channel import Channel
from gnomon.broker.subscriptions.dispatcher import Parcel
from gnomon.log.entry import Offset
from gnomon.log.log_positions import Batch


class DeliveryChannel(Channel, Protocol):
    """A channel that sends; consumers are named by the numbers that the client gave them."""

    def deliver(self, batch: Batch, parcels: Sequence[Parcel]) -> None:
        """Sends a batch, once for all consumers of the connection that get records of it."""

    def let_go(self, numbers: Sequence[int]) -> None:
        """Forgets consumers, which are detached already, and notifies them to subscribe again."""

    def notify_missed(self, numbers: Sequence[int], first: Offset, end: Offset) -> None:
        """Notifies consumers that unacknowledged records in [first, end) were removed."""


DeliveryChannelT = TypeVar("DeliveryChannelT", bound=DeliveryChannel)
