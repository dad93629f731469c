"""A subscription of one partition, its consumers, and the records of a batch that it still has to give. Pure.

1. A record that is acknowledged in the cursor is not given any more.
2. Every unacknowledged record below `position` was given to a consumer; `again` has those that must be given again. In
   a key_shared subscription every record below `position` was read, and `keys` has its state.
3. Permits count records. A consumer with any permits left is given all that it is to get of a batch, so its permits can
   fall below zero by one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Generic

from gnomon.broker.subscriptions.channel import ChannelT
from gnomon.broker.subscriptions.cohort import Cohort
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.key_slots import KeySlots
from gnomon.broker.subscriptions.runs import Runs
from gnomon.log.entry import Offset

RUNS_MAX = 1_000
PLACES_MAX = 5_000
"""Records that are sent by their places in a batch."""


class SubscriptionType(Enum):
    """The rule by which several consumers get records."""

    EXCLUSIVE = "exclusive"
    """One consumer; a second one is refused."""
    FAILOVER = "failover"
    """One consumer gets all records; the next one takes over when it is detached."""
    SHARED = "shared"
    """Consumers get batches in turn."""
    KEY_SHARED = "key_shared"
    """Records of one key are given to one consumer, in order."""


class AttachedConsumer(Generic[ChannelT]):
    """One consumer of one subscription."""

    __slots__ = ("channel", "client", "cohort", "gone", "number", "permits", "subscription", "unacked")

    def __init__(
        self, channel: ChannelT, number: int, client: str, permits: int, subscription: Subscription[ChannelT]
    ) -> None:
        """A consumer that was not given anything yet.

        Args:
            number: the client's number for the consumer on this channel.
            client: identifies the consumer over all connections of its client.
        """
        self.channel = channel
        self.number = number
        self.client = client
        self.permits = permits
        """The permits; in a cohort they include the records that the cohort was given: see `Cohort`."""
        self.subscription = subscription
        self.cohort: Cohort[ChannelT] | None = None
        self.gone = False
        """Whether the consumer was detached: its calls change nothing any more."""
        self.unacked: Runs | None = None
        """Given and unacknowledged offsets, in a shared subscription."""

    @property
    def takes(self) -> bool:
        """Whether a consumer outside of any cohort may be given a batch now."""
        return self.permits > 0 and self.channel.ready

    def read_to(self, position: Offset) -> None:
        """Notes how far the consumer has read, when it leaves its cohort."""
        self.subscription.position = position


class Subscription(Generic[ChannelT]):
    """One durable subscription; its size matters, since a broker may have 100,000."""

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
        """See `SubscriptionsStore`: a record given in another epoch is not acknowledged in this one."""
        self.kind = SubscriptionType.EXCLUSIVE
        """The type that the present consumers asked for."""
        # A single consumer, the usual case, is stored without a tuple: one object less for the garbage collector.
        self._consumers: AttachedConsumer[ChannelT] | tuple[AttachedConsumer[ChannelT], ...] = ()
        self.position = cursor.mark_delete
        """Where reading continues; while the consumer is in a cohort, the cohort's position counts."""
        self.again: Runs | None = None
        self.keys: KeySlots[AttachedConsumer[ChannelT]] | None = None
        """The key slots of a key_shared subscription with consumers."""
        self.station: Offset | None = None
        """The offset at which the subscription waits by itself for a batch."""
        self.life = 0
        """Grows when reading begins again: deliveries that were delayed before are void."""
        self.turn = 0
        """The index of the consumer that got the last batch, in a shared subscription."""

    @property
    def consumers(self) -> tuple[AttachedConsumer[ChannelT], ...]:
        """The consumers, in the order of their arrival; in a failover subscription the first one is active."""
        consumers = self._consumers
        return consumers if isinstance(consumers, tuple) else (consumers,)

    @consumers.setter
    def consumers(self, consumers: tuple[AttachedConsumer[ChannelT], ...]) -> None:
        self._consumers = consumers[0] if len(consumers) == 1 else consumers

    @property
    def shared(self) -> bool:
        """Whether several consumers may be given records."""
        return self.kind in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)

    def begin(self) -> None:
        """Begins reading again, at the first unacknowledged record."""
        self.position = self.cursor.mark_delete
        self.again = self.keys = None
        self.life += 1
        for consumer in self.consumers:
            consumer.unacked = Runs() if self.kind is SubscriptionType.SHARED else None
        if self.kind is SubscriptionType.KEY_SHARED and self.consumers:
            self.keys = KeySlots()
            self.keys.share_out(self.consumers)

    def ready(self) -> bool:
        """Whether a consumer takes a batch now."""
        if self.shared:
            return any(consumer.takes for consumer in self.consumers)
        return self.consumers[0].takes

    def uses(self, channel: ChannelT) -> bool:
        """Whether a consumer has this channel."""
        return any(consumer.channel is channel for consumer in self.consumers)

    def permitted(self) -> bool:
        """Whether a consumer has permits."""
        if self.shared:
            return any(consumer.permits > 0 for consumer in self.consumers)
        return bool(self.consumers) and self.consumers[0].permits > 0

    def skips(self) -> bool:
        """Whether the consumer cannot be in a cohort: some records must be given again, or some must be left out."""
        return bool(self.again) or self.cursor.acked_to > self.position

    def wanted(self) -> Offset | None:
        """The first offset to be given, possibly not written yet; None if no record can be given now."""
        self.position = self.cursor.next_unacked(self.position)
        if self.keys is not None:
            held = self.keys.wanted(self.position)
            return None if held is None else Offset(held)
        return Offset(min(self.again.first, self.position)) if self.again else self.position

    def take(self, base: Offset, end: Offset) -> list[tuple[int, int]]:
        """Takes the runs of the batch [base, end) that a consumer is given next, in order.

        A batch that is not given whole is given in pieces of at most RUNS_MAX runs and PLACES_MAX records.
        """
        runs: list[tuple[int, int]] = []
        places = 0
        stop: int = end
        for first, upto in self._wanted_in(base, end):
            if (first, upto) == (base, end):
                runs.append((base, end))
                break
            last = min(upto, first + PLACES_MAX - places)
            runs.append((first, last))
            places += last - first
            if len(runs) == RUNS_MAX or places == PLACES_MAX:
                stop = last
                break
        if self.again:
            self.again.remove(base, stop)
        self.position = max(self.position, Offset(stop))
        return runs

    def _wanted_in(self, base: Offset, end: Offset) -> Iterator[tuple[int, int]]:
        for first, stop in self.again.within(base, end) if self.again else ():
            yield from self.cursor.unacked_in(first, stop)
        if self.position < end:
            yield from self.cursor.unacked_in(max(self.position, base), end)

    def trimmed(self, start: Offset) -> None:
        """Forgets records below `start`, which were removed; a record that was given stays until it is acknowledged."""
        if self.again:
            self.again.remove(Offset(0), start)
        if self.keys is not None:
            self.keys.trimmed(start)

    def give_again(self, runs: Iterable[tuple[int, int]]) -> None:
        """Gives those records of `runs` again that were given, are not acknowledged and were not removed."""
        if self.keys is not None:
            for first, end in runs:
                self.keys.hold(range(first, end), self.cursor.mark_delete)
            return
        if self.again is None:
            self.again = Runs()
        for first, end in runs:
            for run in self.cursor.unacked_in(first, min(end, self.position)):
                self.again.add(*run)

    def backlog(self, end: Offset) -> int:
        """The number of unacknowledged records below `end`."""
        acknowledged = sum(max(0, min(stop, end) - first) for first, stop in self.cursor.ranges)
        return max(0, end - self.cursor.mark_delete - acknowledged)
