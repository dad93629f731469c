"""A subscription of one partition, who consumes it, and what it still wants of a batch. Pure.

1. A record that the cursor has as acknowledged is wanted by nobody.
2. Below `position` everything was given to a consumer once; what of it has to be given again stands in `again`.
3. Permits count records. A batch is given whole to whoever has any left, so they may fall below zero by one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING

from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.key_slots import KeySlots
from gnomon.broker.subscriptions.runs import Runs

if TYPE_CHECKING:
    from gnomon.broker.subscriptions.cohort import Cohort


class SubscriptionType(Enum):
    """Who of several consumers gets what."""

    EXCLUSIVE = "exclusive"
    """There is one consumer; a second one is refused."""
    FAILOVER = "failover"
    """One gets everything; the next one takes over when it goes."""
    SHARED = "shared"
    """Batches go round."""
    KEY_SHARED = "key_shared"
    """Records of one key go to one consumer, in their order."""


class Link:
    """One connection, as a dispatcher sees it."""

    ready = True
    """Whether it takes deliveries now."""


class Consumer:
    """One consumer of one subscription."""

    __slots__ = ("client", "cohort", "gone", "link", "number", "permits", "subscription", "unacked")

    def __init__(self, link: Link, number: int, client: str, permits: int, subscription: Subscription) -> None:
        """A consumer.

        Args:
            number: the client's name for it on this link.
            client: names the consumer, however often its client connects.
        """
        self.link = link
        self.number = number
        self.client = client
        self.permits = permits
        """In a cohort: counted from when its first batch was given."""
        self.subscription = subscription
        self.cohort: Cohort | None = None
        self.gone = False
        """Whether it was detached: nothing that it says counts any more."""
        self.unacked: Runs | None = None
        """What it was given and has not acknowledged, where several share."""

    @property
    def takes(self) -> bool:
        """Whether it may be given a batch now; of consumers that share, which are in no cohort."""
        return self.permits > 0 and self.link.ready


class Subscription:
    """One durable subscription; memory counts here, there are 100,000 of them."""

    __slots__ = (
        "_consumers",
        "again",
        "cursor",
        "cursor_epoch",
        "keys",
        "kind",
        "life",
        "name",
        "position",
        "station",
        "turn",
    )

    def __init__(self, name: str, cursor: Cursor) -> None:
        self.name = name
        self.cursor = cursor
        self.cursor_epoch = 0
        """See `SubscriptionsStore`: what was given under another one is not acknowledged under this one."""
        self.kind = SubscriptionType.EXCLUSIVE
        """As the consumers that are here wanted it."""
        # A single one, as nearly all subscriptions have, stands here itself: one object less for the garbage collector.
        self._consumers: Consumer | tuple[Consumer, ...] = ()
        self.position = cursor.mark_delete
        """Where reading goes on; of one in a cohort the cohort's."""
        self.again: Runs | None = None
        self.keys: KeySlots | None = None
        """Of a key_shared subscription with consumers."""
        self.station: Offset | None = None
        """Where it waits to be given a batch by itself."""
        self.life = 0
        """Grows when reading begins anew: what was set up for later before that is void."""
        self.turn = 0

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """In their order of arrival; of a failover subscription the first one is active."""
        consumers = self._consumers
        return consumers if isinstance(consumers, tuple) else (consumers,)

    @consumers.setter
    def consumers(self, consumers: tuple[Consumer, ...]) -> None:
        self._consumers = consumers[0] if len(consumers) == 1 else consumers

    @property
    def shared(self) -> bool:
        """Whether several consumers get something."""
        return self.kind in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)

    def begin(self) -> None:
        """Reading begins anew at the first record that is not acknowledged."""
        self.position = self.cursor.mark_delete
        self.again = self.keys = None
        self.life += 1
        for consumer in self.consumers:
            consumer.unacked = Runs() if self.shared else None
        if self.kind is SubscriptionType.KEY_SHARED and self.consumers:
            self.keys = KeySlots()
            self.keys.share_out(self.consumers)

    def ready(self) -> bool:
        """Whether somebody takes a batch now."""
        if self.shared:
            return any(consumer.takes for consumer in self.consumers)
        return self.consumers[0].takes

    def permitted(self) -> bool:
        """Whether somebody has permits."""
        if self.shared:
            return any(consumer.permits > 0 for consumer in self.consumers)
        return bool(self.consumers) and self.consumers[0].permits > 0

    def skips(self) -> bool:
        """Whether it has to be given batches by itself: some records again, or some not at all."""
        return bool(self.again) or self.cursor.acked_to > self.position

    def wanted(self) -> Offset | None:
        """The first offset to be given; it need not be written yet. None where it cannot be given to anybody now."""
        self.position = self.cursor.next_unacked(self.position)
        if self.keys is not None:
            held = self.keys.wanted(self.position)
            return None if held is None else Offset(held)
        return Offset(min(self.again.first, self.position)) if self.again else self.position

    def wanted_in(self, base: Offset, end: Offset) -> list[tuple[int, int]]:
        """The runs of the batch [base, end) that are to be given, in order."""
        if self.keys is not None:
            wanted = self.keys.held_in(base, end)
        else:
            wanted = self.again.remove(base, end) if self.again else []
        if self.position < end:
            wanted.append((max(self.position, base), end))
        return list(self.left(wanted))

    def left(self, runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """What of `runs` is not acknowledged."""
        for first, end in runs:
            yield from self.cursor.unacked_in(first, end)

    def trimmed(self, start: Offset) -> None:
        """What waits to be given and is gone is wanted by nobody; what a consumer has stays its own till it is done."""
        if self.again:
            self.again.remove(Offset(0), start)
        if self.keys is not None:
            self.keys.trimmed(start)

    def give_again(self, runs: list[tuple[int, int]]) -> None:
        """What of `runs` was given once and is not acknowledged is wanted again, unless it is gone by now."""
        if self.keys is not None:
            for first, end in runs:
                self.keys.acked(first, min(end, self.cursor.mark_delete))
        for first, end in self.left([(first, min(end, self.position)) for first, end in runs]):
            if self.keys is not None:
                self.keys.hold(first, end)
                continue
            if self.again is None:
                self.again = Runs()
            self.again.add(first, end)

    def backlog(self, end: Offset) -> int:
        """How many records below `end` are not acknowledged."""
        return max(0, end - self.cursor.mark_delete) - sum(stop - first for first, stop in self.cursor.ranges)
