"""The store of the positions of a partition's subscriptions: the interface, its errors and types.

1. A position only moves forward, also if several processes advance it: an advance to an older position succeeds and
   changes nothing. Only `reset_commit_position` moves it backward.
2. An advance by an earlier owner never undoes a reset, and never recreates a deleted subscription.
3. Each kind of store reads the positions that the other kind wrote: a fleet switches between them broker by broker.
4. A change is durable after its method has returned. After MetadataUnavailable or a LedgerError the outcome is unknown,
   and a retry is safe.

A store serves one partition of one topic (a source or a shadow) during one term (time of leadership) of one broker. A
new term needs a new store, because a store caches the records that it has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from gnomon.log.dlsn import AT_BEGINNING, CommitPoint, Dlsn
from gnomon.log.entry import Offset
from gnomon.log.subscription_keys import SubscriptionsError

Ranges: TypeAlias = tuple[tuple[Offset, Offset], ...]
"""Runs of offsets [first, end)."""


class Position(NamedTuple):
    """The position of a subscription: the first unacknowledged record, and acknowledged ranges above it."""

    point: CommitPoint = AT_BEGINNING
    """The first record that is not acknowledged."""
    ranges: Ranges = ()
    """Acknowledged offsets above that record, in order; see `Cursor.first_ranges`."""

    @property
    def dlsn(self) -> Dlsn:
        """The DLSN of the first unacknowledged record."""
        return self.point.dlsn

    @property
    def offset(self) -> Offset:
        """The offset of the first unacknowledged record, which may be higher than the end of the log known here."""
        return Offset(self.point.offset)


class UnreadablePosition(SubscriptionsError):
    """The stored record or entry of a subscription has a form that this version of gnomon does not write."""

    def __init__(self, where: str, why: Exception) -> None:
        super().__init__(
            f"{where} cannot be read ({why}): if a newer gnomon wrote it, use that version; if it is damaged, delete"
            " the subscription"
        )


class SubscriberChanged(SubscriptionsError):
    """Another process has deleted, reset or taken over the subscription since this store read it.

    The refused change never takes effect after the other process's change. The store refuses each later change of the
    subscription until its position is read again (`load`, `create`, `get_last_commit_position`).
    """

    def __init__(self, subscriber: str) -> None:
        super().__init__(
            f"subscription {subscriber!r} was deleted, reset or taken over by another process since it was read: the"
            " change came too late; load the subscription again"
        )


def raise_refused(refused: Iterable[str]) -> None:
    """Raises SubscriberChanged for the first refused subscription, if there is one."""
    for subscriber in refused:
        raise SubscriberChanged(subscriber)


class StoreFenced(SubscriptionsError):
    """The partition has another owner, or its topic was deleted: this store stores nothing any more."""


class SubscriptionsStore(Protocol):
    """The positions of one partition's subscriptions, by name.

    Every method may raise MetadataError, StoreFenced, InvalidSubscriber and UnreadablePosition, and LedgerError if
    segments are in use.
    """

    async def get_last_commit_position(self, subscriber: str) -> CommitPoint:
        """The position of a subscription; AT_BEGINNING if there is none of this name."""

    async def get_last_commit_positions(self) -> dict[str, CommitPoint]:
        """The position of every subscription, in order of name."""

    async def advance_commit_position(self, subscriber: str, point: CommitPoint) -> None:
        """Advances a subscription to `point`, or creates it if there is none. Its stored ranges stay.

        Raises:
            SubscriberChanged: another process changed the subscription.
        """

    async def reset_commit_position(self, subscriber: str, point: CommitPoint) -> None:
        """Moves a subscription to `point`, forward or backward, and deletes its ranges, or creates it if there is none.

        Raises:
            SubscriberChanged: another process changed the subscription.
        """

    async def delete_subscriber(self, subscriber: str) -> None:
        """Deletes a subscription with its record and segment; does nothing if there is none."""

    async def load(self) -> dict[str, Position]:
        """Every subscription with its ranges, in order of name: one range read, if no segments are in use."""

    async def create(self, points: Mapping[str, CommitPoint]) -> dict[str, Position]:
        """Creates the subscriptions that do not exist, in grouped transactions.

        Returns:
            The position of each: its point in `points`, or the stored position if the subscription existed already.
        """

    async def advance_many(self, positions: Mapping[str, Position]) -> tuple[str, ...]:
        """Advances many subscriptions, in grouped transactions, and stores their ranges; see `advance_commit_position`.

        Ranges may change while the point stays. A refused position must not be passed again after the subscription is
        loaded again, because it could undo the change that refused it.

        Returns:
            The refused subscriptions, which another process changed (`SubscriberChanged`): they are not stored.
        """

    def cursor_epoch(self, subscriber: str) -> int:
        """A number that grows when a subscription is reset or created again, and only then.

        The number is from the last time that this store loaded, created or reset the subscription.
        """

    async def close(self) -> None:
        """Ends the use of the store; closes segments, so that the next owner need not recover them."""
