"""Errors of the native protocol, on both sides.

Those that are `Retriable` say that asking again, perhaps elsewhere, may help: the client does that by itself.
"""

from __future__ import annotations

from typing import Final

from gnomon.runtime.rpc_errors import ErrorTable


class NativeError(Exception):
    """The broker did not do it; the text says why and what to do."""


class Retriable(NativeError):
    """It may work later, or at another broker."""


class NotLeader(Retriable):
    """Another broker leads the partition; look it up again."""


class Unavailable(Retriable):
    """The partition or the metadata cannot be used at the moment."""


class NoSuchTopic(NativeError):
    """There is no topic of this name, or no such partition of it."""


class NoSuchSubscription(NativeError):
    """The partition has no subscription of this name."""


class SubscriptionTaken(NativeError):
    """Other consumers of the subscription stand in the way."""


class InvalidCall(NativeError):
    """The call does not make sense; the text says what would."""


class ConsumerClosed(NativeError):
    """The consumer or its client was closed."""


class RecordsMissed(NativeError):
    """Records of a partition were given up before the subscription acknowledged them; it goes on behind them.

    Somebody deleted them (DeleteRecords, truncate), or the topic's settings did: a backlog quota with drop-oldest, or
    `gnomon.retention.hold=none`. All of them lie in [first, end); at `first` or behind it is where it stood.
    """

    def __init__(self, topic: str, partition: int, subscription: str, first: int, end: int) -> None:
        super().__init__(
            f"subscription {subscription!r} has missed records of partition {partition} of topic '{topic}' between"
            f" offsets {first} and {end}: they were given up before it acknowledged them; it goes on at {end}"
        )
        self.topic = topic
        self.partition = partition
        self.subscription = subscription
        self.first = first
        self.end = end


ERRORS: Final = ErrorTable(
    {
        NotLeader: (),
        Unavailable: (),
        NoSuchTopic: (),
        NoSuchSubscription: (),
        SubscriptionTaken: (),
        InvalidCall: (),
    }
)
SERVICE: Final = "broker"
"""What the service of every broker is called: a client does not know their numbers."""
MOVED: Final = "moved"
"""Notice to consumers: subscribe again, at the leader of the partition."""
MISSED: Final = "missed"
"""Notice to consumers: records went that the subscription had not acknowledged; the two offsets follow."""
SUBSCRIBE_MAX: Final = 1000
"""Subscriptions in one call."""
