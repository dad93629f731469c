"""Decides which records of one partition are given to which consumers of its subscriptions. Pure.

1. The consumers of a subscription are given every unacknowledged record from its cursor on, at least once. They are
   given no record at or above `end`, the high watermark.
2. A record that was given and not acknowledged is given again when its consumer is detached or returns it (`nack`).
3. An exclusive or failover subscription gives records to one consumer at a time. A key_shared subscription gives the
   records of a key in order, and to one consumer at a time.
4. All readers that wait at one offset share one station: their batch is read once, and sent once over each channel.
5. Consumers of a channel that get the same records are a cohort: a batch for a thousand of them costs as much as for
   one, plus about ten nanoseconds each. An idle subscription costs nothing.
6. A call of a consumer that was detached changes nothing.
7. Every act spends its price from `allowance`. When no units are left, no further reader is given anything and no
   delayed record is given again until the allowance is renewed. The most expensive acts read LOOKED_AT_ONCE keys or
   give one stretch of records (`key_slots`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice
from struct import pack
from typing import Generic, NamedTuple, TypeAlias

from sortedcontainers import SortedList

from gnomon.broker.subscriptions.allowance import Allowance
from gnomon.broker.subscriptions.channel import ChannelT
from gnomon.broker.subscriptions.cohort import Cohort
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.key_slots import KeySlots
from gnomon.broker.subscriptions.runs import Runs
from gnomon.broker.subscriptions.stations import Stations
from gnomon.broker.subscriptions.subscription import (
    PLACES_MAX,
    RUNS_MAX,
    AttachedConsumer,
    Subscription,
    SubscriptionType,
)
from gnomon.log.entry import Offset

Look: TypeAlias = Callable[[int, int], Sequence[int]]
"""Given an offset of a batch and a number of records: the slots of their keys (`key_slots.slot_of`), or fewer, or none
while the records are not decompressed. Called only for key_shared subscriptions."""


class ConsumerRefused(Exception):
    """A consumer cannot share the subscription with its present consumers; the text says why and what to do."""


class Parcel(NamedTuple):
    """Some consumers of one channel, and the records of a batch that they get."""

    numbers: bytes
    """The consumers' numbers, packed as u32."""
    slots: bytes | None
    """The records' places in the batch, packed as u32; None for all records."""


CONSUMERS_MAX = 1000
"""Limit for one subscription: attaching or detaching one costs about 50 ns for each of the others."""
LOOKED_AT_ONCE = 500
"""Keys that one act reads."""
LEARNED_UNITS = 6
READER_UNITS = 4
PLACED_UNITS = 32
BYTES_OF_PLACES_PER_UNIT = 32
SENT_UNITS_MAX = 4_000
"""Limit for the price of the deliveries of one act over several channels."""
CONSUMER_UNITS = 16
AT_ONCE = float("-inf")

Parcels: TypeAlias = dict[ChannelT, list[Parcel]]
"""The parcels of one batch, by channel."""


class Dispatcher(Generic[ChannelT]):
    """The subscriptions of one partition and their consumers; see the module's invariants."""

    def __init__(self, end: Offset, allowance: Allowance | None = None) -> None:
        self.allowance = allowance or Allowance()
        self.end = end
        """The high watermark."""
        self.subscriptions: dict[str, Subscription[ChannelT]] = {}
        self._names: SortedList[str] = SortedList()
        """Their names in order: a page of 100,000 of them takes 0.1 ms, against 25 ms without the order."""
        self.dirty: dict[Subscription[ChannelT], None] = {}
        """Subscriptions whose cursor has moved since it was stored; the caller that stores them removes them."""
        self._stations: Stations[ChannelT] = Stations()
        self._keyed: dict[Subscription[ChannelT], None] = {}
        """Subscriptions that are key_shared now: their held records may wait for one channel of several."""
        self._unplaced: dict[Subscription[ChannelT], None] = {}
        """key_shared subscriptions that get a station at the next `wanted`: once, after any number of events."""
        self._delayed: list[tuple[float, int, Subscription[ChannelT], int, Sequence[tuple[int, int]]]] = []
        """Records to be given again and when, in pieces of at most RUNS_MAX runs."""
        self._sequence = 0

    # --- subscriptions and consumers ----------------------------------------------------------------------------

    def add(self, name: str, cursor: Cursor) -> Subscription[ChannelT]:
        """Adds a subscription without consumers."""
        subscription: Subscription[ChannelT] = Subscription(name, cursor)
        if name not in self.subscriptions:
            self._names.add(name)
        self.subscriptions[name] = subscription
        return subscription

    def remove(self, name: str) -> None:
        """Removes a subscription without consumers."""
        subscription = self.subscriptions.pop(name)
        assert not subscription.consumers, f"subscription {name!r} has consumers"
        self._names.remove(name)
        self.dirty.pop(subscription, None)

    def names_after(self, name: str, count: int) -> list[str]:
        """The next `count` names of subscriptions after `name`, in order."""
        return list(islice(self._names.irange(name, inclusive=(False, True)), count))

    def check(self, subscription: Subscription[ChannelT], kind: SubscriptionType, client: str) -> None:
        """Checks whether one more consumer may be attached.

        Raises:
            ConsumerRefused: it may not.
        """
        others = [consumer for consumer in subscription.consumers if consumer.client != client]
        if others and subscription.kind is not kind:
            raise ConsumerRefused(
                f"subscription {subscription.name!r} is {subscription.kind.value} as long as it has its consumers, not "
                f"{kind.value}: use the same type, or another name"
            )
        if others and kind is SubscriptionType.EXCLUSIVE:
            raise ConsumerRefused(
                f"exclusive subscription {subscription.name!r} has a consumer: close it, subscribe as failover"
                " or shared, or use another name"
            )
        if len(others) >= CONSUMERS_MAX:
            raise ConsumerRefused(
                f"subscription {subscription.name!r} has {len(others)} consumers of this partition, which is the most:"
                " use fewer, or more partitions"
            )

    def attach(
        self,
        subscription: Subscription[ChannelT],
        kind: SubscriptionType,
        channel: ChannelT,
        number: int,
        client: str,
        permits: int,
    ) -> AttachedConsumer[ChannelT]:
        """Attaches a consumer that was checked, in place of one of the same client."""
        for consumer in subscription.consumers:
            if consumer.client == client:
                self.detach(consumer)
        consumer = AttachedConsumer(channel, number, client, permits, subscription)
        assert kind is subscription.kind or not subscription.consumers, "the consumer was not checked"
        self._unplace(subscription)
        first = not subscription.consumers
        subscription.kind = kind
        subscription.consumers += (consumer,)
        if first:
            subscription.begin()
            if subscription.keys is not None:
                self._keyed[subscription] = None
        elif subscription.keys is not None:
            subscription.keys.share_out(subscription.consumers)
        elif subscription.shared:
            consumer.unacked = Runs()
        self._place(subscription)
        return consumer

    def detach(self, consumer: AttachedConsumer[ChannelT]) -> None:
        """Detaches a consumer; its unacknowledged records are given again."""
        if consumer.gone:
            return
        subscription = consumer.subscription
        self.allowance.spend(CONSUMER_UNITS + len(subscription.consumers) // 8)
        self._unplace(subscription)
        consumer.gone = True
        was_active = subscription.consumers[0] is consumer
        at = subscription.consumers.index(consumer)
        subscription.consumers = subscription.consumers[:at] + subscription.consumers[at + 1 :]
        if not subscription.consumers or (was_active and not subscription.shared):
            subscription.begin()
            self._keyed.pop(subscription, None)
        elif subscription.keys is not None:
            self.allowance.spend(subscription.keys.gone(consumer, subscription.cursor.mark_delete) // 8)
            subscription.keys.share_out(subscription.consumers)
        elif consumer.unacked:
            runs = list(consumer.unacked)
            self.allowance.spend(4 * min(len(runs), RUNS_MAX))
            subscription.give_again(runs[:RUNS_MAX])
            self._later(subscription, AT_ONCE, runs[RUNS_MAX:])
        self._place(subscription)

    # --- calls of consumers -------------------------------------------------------------------------------------

    def flow(self, consumer: AttachedConsumer[ChannelT], permits: int) -> None:
        """Grants a consumer more permits."""
        self.allowance.spend(1)
        if consumer.gone:
            return
        had = consumer.permits
        consumer.permits += permits
        if consumer.cohort is None and had <= 0:
            self._place_again(consumer.subscription)

    def ack(self, consumer: AttachedConsumer[ChannelT], first: Offset, end: Offset) -> None:
        """Acknowledges the records [first, end)."""
        self.allowance.spend(1)
        if consumer.gone:
            return
        end = end if end < self.end else self.end
        subscription = consumer.subscription
        if subscription.cursor.ack(first, end):
            self.dirty[subscription] = None
        if subscription.again:
            subscription.again.remove(first, end)
        if subscription.keys is None:
            if consumer.unacked:
                consumer.unacked.remove(first, end)
            return
        # For any consumer: one that attached again may acknowledge records that were since given to another.
        self.allowance.spend(2 * subscription.keys.acked(first, end))
        self._place_again(subscription)  # later records of these keys may be given now

    def ack_up_to(self, consumer: AttachedConsumer[ChannelT], end: Offset) -> None:
        """Acknowledges every record below `end`; not for shared subscriptions, where other consumers may hold some."""
        subscription = consumer.subscription
        assert consumer.gone or not subscription.shared, f"subscription {subscription.name!r} is shared"
        self.ack(consumer, subscription.cursor.mark_delete, end)

    def nack(self, consumer: AttachedConsumer[ChannelT], first: Offset, end: Offset, due: float, now: float) -> None:
        """Returns records that a consumer will not acknowledge: they are given again at `due`."""
        self.allowance.spend(2)
        if consumer.gone:
            return
        subscription = consumer.subscription
        end = min(end, self.end)
        runs: list[tuple[int, int]]
        if subscription.keys is not None:
            runs = [(offset, offset + 1) for offset in subscription.keys.taken_back(consumer, first, end)]
            self._place_again(subscription)
        elif consumer.unacked is not None:
            runs = consumer.unacked.remove(first, end)
        else:
            runs = [(first, end)] if consumer is subscription.consumers[0] else []
        self._later(subscription, due, runs)
        self.tick(now)

    def _later(self, subscription: Subscription[ChannelT], due: float, runs: Sequence[tuple[int, int]]) -> None:
        for at in range(0, len(runs), RUNS_MAX):
            some = runs[at : at + RUNS_MAX]
            self.allowance.spend(4 + 2 * len(some))
            self._sequence += 1
            heapq.heappush(self._delayed, (due, self._sequence, subscription, subscription.life, some))

    def pieces_of(self, consumer: AttachedConsumer[ChannelT], first: int, end: int) -> list[tuple[int, int]]:
        """Splits [first, end) into runs, each of which is cheap to acknowledge or to return."""
        keys = consumer.subscription.keys
        return [(first, end)] if keys is None else keys.pieces_of(first, end, RUNS_MAX)

    def seek(self, subscription: Subscription[ChannelT], offset: Offset) -> None:
        """Moves the cursor of a subscription without consumers; earlier acknowledgements are forgotten."""
        assert not subscription.consumers, f"subscription {subscription.name!r} has consumers"
        subscription.cursor.seek(offset)
        subscription.begin()
        self.dirty.pop(subscription, None)

    # --- time and the log ---------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """The time at which `tick` has to be called next; None for never."""
        return self._delayed[0][0] if self._delayed else None

    def tick(self, now: float) -> None:
        """Gives records again whose delay is over, as far as the allowance permits."""
        while self._delayed and self._delayed[0][0] <= now and self.allowance.left > 0:
            _, _, subscription, life, runs = heapq.heappop(self._delayed)
            if subscription.life == life and subscription.consumers:
                self.allowance.spend(4 + 4 * len(runs))
                self._unplace(subscription)
                subscription.give_again(runs)
                self._place(subscription)

    def advanced(self, end: Offset) -> None:
        """Advances the high watermark."""
        self.end = max(self.end, end)

    def trimmed(self, start: Offset) -> list[tuple[Subscription[ChannelT], Offset]]:
        """Moves subscriptions below `start`, where the log begins now, to `start`.

        Returns:
            The subscriptions that missed records, with the first offset they missed. Their positions are not stored
            before their next acknowledgement: until then every new consumer must be notified, by any broker.
        """
        jumped = []
        for subscription in self.subscriptions.values():
            first = subscription.cursor.mark_delete
            if subscription.cursor.trimmed(start):
                jumped.append((subscription, first))
                self.dirty.pop(subscription, None)
                self._unplace(subscription)
                subscription.trimmed(start)
                self._place(subscription)
        return jumped

    def channel_ready(self, channel: ChannelT) -> None:
        """A channel takes deliveries again."""
        for subscription in [each for each in self._keyed if each.uses(channel)]:
            self._place_again(subscription)
        for subscription in self._stations.resumed(channel):
            self._place(subscription)

    # --- giving -------------------------------------------------------------------------------------------------

    def wanted(self, excluded: Container[Offset] = ()) -> Offset | None:
        """The next offset, not in `excluded`, whose batch a reader takes now.

        None if there is none, or if the allowance was spent on finding out where readers wait.
        """
        while self._unplaced and self.allowance.left > 0:
            subscription = next(iter(self._unplaced))
            del self._unplaced[subscription]
            self.allowance.spend(PLACED_UNITS)
            self._stations.place(subscription)
        return self._stations.next_wanted(self.end, excluded)

    def give(self, at: Offset, base: Offset, end: Offset, look: Look, units: int = 0) -> Parcels[ChannelT]:
        """Gives the batch [base, end) to the readers that wait at offset `at`, which the batch covers.

        When the allowance is spent, the remaining readers go on waiting. A key_shared subscription may get nothing yet:
        its batch is read in several turns.

        Args:
            units: the price of sending the batch over one channel.
        """
        parcels: Parcels[ChannelT] = {}
        for reader in self._stations.at(at):
            if not reader.ready():
                self._stations.hold_up(reader, at)
                continue
            self._stations.leave(reader, at)
            before = len(parcels)
            if isinstance(reader, Cohort):
                self._give_cohort(reader, base, end, parcels)
            else:
                reader.station = None
                if reader.keys is None:
                    self._give_one(reader, base, end, parcels)
                elif at < reader.position or self.read_slice(reader, reader.keys, end, look):
                    self._give_by_key(reader.keys, base, end, units, parcels)
                self._place(reader)
            self.allowance.spend(READER_UNITS + (len(parcels) - before) * units)
            if self.allowance.left <= 0:
                break
        return parcels

    def _give_cohort(self, cohort: Cohort[ChannelT], base: Offset, end: Offset, parcels: Parcels[ChannelT]) -> None:
        self._stations.take(cohort)
        cohort.release_idle()
        if not cohort.members:
            return
        position = cohort.position
        slots = None
        if position > base:
            end = min(end, Offset(position + PLACES_MAX))
            slots = _packed(range(position - base, end - base))
            self.allowance.spend(len(slots) // BYTES_OF_PLACES_PER_UNIT)
        parcels.setdefault(cohort.channel, []).append(Parcel(cohort.numbers(), slots))
        cohort.given += end - max(base, position)
        cohort.position = end
        self._stations.stand(cohort)

    def _give_one(
        self, subscription: Subscription[ChannelT], base: Offset, end: Offset, parcels: Parcels[ChannelT]
    ) -> None:
        """Gives the next ready consumer the records of the batch that its subscription still has to give, or some."""
        consumer = self._next_taker(subscription)
        runs = subscription.take(base, end)
        if not runs:
            return
        self.allowance.spend(4 * len(runs))
        consumer.permits -= sum(stop - first for first, stop in runs)
        if consumer.unacked is not None:
            for first, stop in runs:
                consumer.unacked.add(first, stop)
        slots = None if runs == [(base, end)] else _packed(*(range(first - base, stop - base) for first, stop in runs))
        if slots is not None:
            self.allowance.spend(len(slots) // BYTES_OF_PLACES_PER_UNIT)
        parcels.setdefault(consumer.channel, []).append(Parcel(pack("<I", consumer.number), slots))

    @staticmethod
    def _next_taker(subscription: Subscription[ChannelT]) -> AttachedConsumer[ChannelT]:
        consumers = subscription.consumers
        if not subscription.shared:
            return consumers[0]
        for step in range(1, len(consumers) + 1):
            at = (subscription.turn + step) % len(consumers)
            if consumers[at].takes:
                subscription.turn = at
                return consumers[at]
        raise AssertionError(f"no consumer of subscription {subscription.name!r} takes anything")

    def read_slice(
        self, subscription: Subscription[ChannelT], keys: KeySlots[AttachedConsumer[ChannelT]], end: Offset, look: Look
    ) -> bool:
        """Reads a slice of a batch; returns whether the stretch is complete and may be given in the same act."""
        position = subscription.position
        stop = keys.stretch(position, end)
        slots = look(position, min(LOOKED_AT_ONCE, stop - position))
        for first, upto in subscription.cursor.unacked_in(position, position + len(slots)):
            keys.learned(first, slots[first - position : upto - position])
        self.allowance.spend(LEARNED_UNITS * len(slots))
        subscription.position = Offset(position + len(slots))
        return subscription.position == stop and self.allowance.left > 0

    def _give_by_key(
        self,
        keys: KeySlots[AttachedConsumer[ChannelT]],
        base: Offset,
        end: Offset,
        units: int,
        parcels: Parcels[ChannelT],
    ) -> None:
        channels_max = max(1, SENT_UNITS_MAX // max(1, units))
        for consumer, offsets in keys.give(base, end, channels_max).items():
            self.allowance.spend(len(offsets))
            consumer.permits -= len(offsets)
            places = _packed([offset - base for offset in sorted(offsets)])
            parcels.setdefault(consumer.channel, []).append(Parcel(pack("<I", consumer.number), places))

    # --- where readers wait --------------------------------------------------------------------------------------

    def _place_again(self, subscription: Subscription[ChannelT]) -> None:
        self._unplace(subscription)
        self._place(subscription)

    def _place(self, subscription: Subscription[ChannelT]) -> None:
        """Lets a subscription wait at the next offset that it has to give, if a consumer has permits."""
        if subscription.keys is not None:
            self._unplaced[subscription] = None
        else:
            self._stations.place(subscription)

    def _unplace(self, subscription: Subscription[ChannelT]) -> None:
        self._stations.remove(subscription)
        self._unplaced.pop(subscription, None)


def _packed(*places: Iterable[int]) -> bytes:
    every = [place for some in places for place in some]
    return pack(f"<{len(every)}I", *every)
