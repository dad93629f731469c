"""Where the positions of a partition's subscriptions are kept: the interface, its errors and names.

1. A position only goes forward, whoever else advances it: an older one is a silent success that changes nothing. Only
   `reset_commit_position` goes back.
2. What an owner of before advances never undoes a reset, and never brings back a subscription that was deleted.
3. Both kinds of store read what the other one wrote: a fleet switches from one to the other broker by broker.
4. What a method returned for is durable; after MetadataUnavailable or a LedgerError it may be or not, and asking again
   is safe.

A store is of one partition of one topic (a source or a shadow alike) and of one term of its leader: it remembers what
it has read, so make a new one for a new term.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote, unquote

from gnomon.bookie.record import ledger_key
from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.dlsn import BEGINNING, Dlsn
from gnomon.metadata.client import Delete, DeletePrefix, Operation

SUBSCRIPTIONS: Final = "subscriptions/"
"""Where the metadata keys of all subscribers begin, and the names of their segments' ledgers."""
REPLICATORS: Final = "replicators/"
"""Where the metadata keys of all replicators' cursors begin."""
HOLDS: Final = "holds/"
"""Where the metadata keys begin that change with what subscriptions hold: see `hold_key`."""
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
"""Names that are quoted as they stand."""
NAME_BYTES_MAX = 300
"""Longest name as it stands in keys: letters, digits and `_.-~` are one byte each, other bytes three."""

Ranges: TypeAlias = tuple[tuple[Offset, Offset], ...]
"""Runs of offsets [first, end)."""


class Position(NamedTuple):
    """Where a subscription stands."""

    dlsn: Dlsn = BEGINNING
    """The first record that is not acknowledged."""
    ranges: Ranges = ()
    """Offsets behind it that are acknowledged, in order; see `Cursor.first_ranges`."""


class SubscriptionsError(Exception):
    """The store did not do it; the text says why and what to do."""


class InvalidSubscriber(SubscriptionsError, ValueError):
    """A name that no subscription can have."""


class UnreadablePosition(SubscriptionsError):
    """What is stored of a subscription is nothing that a gnomon of this version has written."""

    def __init__(self, where: str, why: Exception) -> None:
        super().__init__(
            f"{where} cannot be read ({why}): a newer gnomon wrote it, then use that one, or it is damaged, then delete"
            " the subscription"
        )


class SubscriberChanged(SubscriptionsError):
    """Somebody else has deleted, reset or taken over the subscription since this store read it.

    What was given never comes to be behind what the other did. The store takes no change of the subscription any more
    until it was asked where it stands (`load`, `create`, `get_last_commit_position`).
    """

    def __init__(self, subscriber: str) -> None:
        super().__init__(
            f"subscription {subscriber!r} was deleted, reset or taken over by another since it was read: what was to be"
            " stored came too late; load it again"
        )


def raise_refused(refused: Iterable[str]) -> None:
    """Raises SubscriberChanged for the first of those that were refused, where there are any."""
    for subscriber in refused:
        raise SubscriberChanged(subscriber)


class StoreFenced(SubscriptionsError):
    """The partition has another owner, or its topic is gone: this store stores nothing any more."""


class SubscriptionsStore(Protocol):
    """The positions of one partition's subscriptions, by name.

    Every method may raise MetadataError, StoreFenced, InvalidSubscriber and UnreadablePosition; where segments are in
    use LedgerError, too.
    """

    async def get_last_commit_position(self, subscriber: str) -> Dlsn:
        """Where a subscription stands; BEGINNING where there is none of this name."""

    async def get_last_commit_positions(self) -> dict[str, Dlsn]:
        """Where every subscription stands, in order of name."""

    async def advance_commit_position(self, subscriber: str, dlsn: Dlsn) -> None:
        """Moves a subscription on to `dlsn`; makes it where there is none. Its stored ranges stay.

        Raises:
            SubscriberChanged: see there.
        """

    async def reset_commit_position(self, subscriber: str, dlsn: Dlsn) -> None:
        """Moves a subscription to `dlsn`, forwards or back, and forgets its ranges; makes it where there is none.

        Raises:
            SubscriberChanged: see there.
        """

    async def delete_subscriber(self, subscriber: str) -> None:
        """Deletes a subscription with all that is stored of it; nothing where there is none."""

    async def load(self) -> dict[str, Position]:
        """Every subscription with its ranges, in order of name: one range read, where no segments are in use."""

    async def create(self, positions: Mapping[str, Dlsn]) -> dict[str, Position]:
        """Makes those subscriptions that do not exist, in grouped transactions.

        Returns:
            Where each of them stands now: where it was to begin, or where it was already.
        """

    async def advance_many(self, positions: Mapping[str, Position]) -> tuple[str, ...]:
        """Moves many subscriptions on, in grouped transactions, and stores their ranges; see `advance_commit_position`.

        Ranges may change while the DLSN stays. What was refused must not be given again after the subscription was
        loaded: it may undo what refused it.

        Returns:
            Those of which `SubscriberChanged` holds, and which are not stored.
        """

    def cursor_epoch(self, subscriber: str) -> int:
        """A number that grows when a subscription is reset or made anew, and only then.

        As it was when this store loaded, made or reset the subscription last.
        """

    async def close(self) -> None:
        """Ends the use of the store; segments are closed, so that the next owner need not recover them."""


def subscriptions_prefix(topic_id: uuid.UUID, partition: int | None = None) -> str:
    """Where the keys of a topic's (or of one partition's) subscriptions begin; and the names of their ledgers."""
    topic = f"{SUBSCRIPTIONS}{topic_id.hex}/"
    return topic if partition is None else f"{topic}{partition}/"


def replicators_prefix(topic_id: uuid.UUID) -> str:
    """Where the keys begin that say how far a shadow was told of its source: by partition, and no subscriptions."""
    return f"{REPLICATORS}{topic_id.hex}/"


def hold_key(topic_id: uuid.UUID) -> str:
    """The key that is written whenever a subscription of the topic, or of a shadow, comes, goes back or is deleted.

    Who gives up records that all subscriptions have read compares it (`hold`), and who grows the topic (`growth`).
    """
    return f"{HOLDS}{topic_id.hex}"


def subscriber_in_key(subscriber: str) -> str:
    """A subscription's name as it stands in keys and in the names of ledgers: without a slash.

    Raises:
        InvalidSubscriber: it is empty, too long, or no text.
    """
    try:
        quoted = subscriber if _PLAIN.fullmatch(subscriber) else quote(subscriber, safe="")
    except UnicodeEncodeError as error:
        raise InvalidSubscriber(f"subscription {subscriber!r}: the name is no text in UTF-8") from error
    if not 0 < len(quoted) <= NAME_BYTES_MAX:
        raise InvalidSubscriber(
            f"subscription {subscriber!r}: the name takes {len(quoted)} bytes, 1 to {NAME_BYTES_MAX} are allowed"
            " (letters, digits and _.-~ take one each, other bytes three)"
        )
    return quoted


def subscriber_of_key(key: str) -> str:
    """Undoes `subscriber_in_key`, for the last part of a metadata key."""
    name = key.rpartition("/")[2]
    return unquote(name) if "%" in name else name


def deletion_of_subscriptions(topic_id: uuid.UUID) -> tuple[Operation, ...]:
    """What a transaction that deletes a topic does about its subscriptions, and about the replicators of a shadow."""
    prefix, replicators = subscriptions_prefix(topic_id), replicators_prefix(topic_id)
    return (
        *(DeletePrefix(prefix), DeletePrefix(ledger_key(prefix)), DeletePrefix(replicators)),
        Delete(hold_key(topic_id)),
    )
