"""A part, one consumer's share of one partition: its attachment to a broker, and the data still to be sent there.

1. A part has at most one attachment. A delivery for an earlier attachment does not reach the part.
2. Deliveries that arrive before the broker confirms the attachment are kept until it does.
3. Acknowledgements that were not sent yet survive a lost connection and a move of the leader. They do not survive a
   reset of the subscription (a new cursor epoch).
4. A part that was released owes no permits and keeps no deliveries: the broker delivers those records again.
"""

from __future__ import annotations

from typing import Protocol

from gnomon.client.broker_connection import BrokerConnection
from gnomon.client.consumer_options import ConsumerOptions
from gnomon.client.delivered_batch import DeliveredBatch


class PartOwner(Protocol):
    """The consumer of a part, as parts and their attachments use it."""

    topic: str
    name: str
    """The subscription's name."""
    options: ConsumerOptions

    @property
    def error(self) -> Exception | None:
        """Why the consumer receives nothing any more."""

    def deliver(self, part: Part, batch: DeliveredBatch, slots: bytes | None) -> None:
        """Takes a delivery to an attached part."""

    def missed(self, part: Part, first: int, end: int) -> None:
        """Notes that records were removed before the subscription acknowledged them."""

    def forget(self, part: Part) -> None:
        """Drops the messages of a part that were not received yet."""

    def fail(self, error: Exception) -> None:
        """Ends the consumer with an error."""


class Part:
    """The part of a consumer that reads one partition; a receiver of deliveries."""

    __slots__ = (
        "acked",
        "asked",
        "connection",
        "consumer",
        "cursor_epoch",
        "early",
        "given_up",
        "id",
        "initial_position",
        "number",
        "owed",
        "partition",
        "unacked",
    )

    def __init__(self, consumer: PartOwner, partition: int, id: int, initial_position: str) -> None:
        self.consumer = consumer
        self.partition = partition
        self.initial_position = initial_position
        """Where a new subscription begins in this partition."""
        self.id = id
        """Distinguishes the parts of one client, for as long as the client lives."""
        self.asked: BrokerConnection[Part] | None = None
        """The connection that was last asked to attach the part: its broker may have done so, or may still do so."""
        self.number = 0
        """The number of the attachment on that connection."""
        self.connection: BrokerConnection[Part] | None = None
        """The connection on which the part is attached; None while it is not attached."""
        self.cursor_epoch = 0
        """The epoch of the subscription's cursor at the last attachment: see `SubscriptionsStore`."""
        self.early: tuple[tuple[DeliveredBatch, bytes | None], ...] = ()
        """Deliveries that arrived before the broker confirmed the attachment."""
        self.given_up = 0
        """Records below this offset were missed: those that wait here are not handed out."""
        self.owed = 0
        """Permits that the broker has to be granted: records handed out or unreadable since the last grant."""
        self.acked: list[int] = []
        """Runs of acknowledged offsets that were not sent yet: first, end, first, end …"""
        self.unacked: dict[int, float] | None = None if consumer.options.ack_seconds is None else {}
        """With an ack time-out: the deadline of each offset that was received, the oldest first."""

    def begin(self, connection: BrokerConnection[Part]) -> None:
        """Begins a new attachment: deliveries for its number are kept from now on, those for the last one dropped."""
        self.drop()
        self.asked, self.number = connection, connection.add(self)

    def attached(self, connection: BrokerConnection[Part], cursor_epoch: int) -> None:
        """The broker has confirmed the attachment, and named the epoch of the subscription's cursor."""
        self.connection = connection
        if self.cursor_epoch != cursor_epoch:
            self.cursor_epoch = cursor_epoch
            self.acked.clear()
        early, self.early = self.early, ()
        for batch, slots in early:
            self.consumer.deliver(self, batch, slots)

    def deliver(self, batch: DeliveredBatch, slots: bytes | None) -> None:
        """See `Receiver`."""
        if self.connection is None:
            self.early += ((batch, slots),)
        else:
            self.consumer.deliver(self, batch, slots)

    def missed(self, first: int, end: int) -> None:
        """See `Receiver`."""
        self.given_up = end
        self.consumer.missed(self, first, end)

    def drop(self) -> None:
        """Drops deliveries for the present attachment from now on."""
        if self.asked is not None and self.asked.receivers.get(self.number) is self:
            del self.asked.receivers[self.number]

    def release(self) -> None:
        """Ends the attachment, and drops what it has delivered."""
        self.drop()
        self.connection = None
        self.owed = self.given_up = 0
        self.early = ()
        if self.unacked:
            self.unacked.clear()
        self.consumer.forget(self)
