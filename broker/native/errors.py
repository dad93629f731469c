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
SUBSCRIBE_MAX: Final = 1000
"""Subscriptions in one call."""
