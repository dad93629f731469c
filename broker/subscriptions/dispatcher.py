"""What of one partition's log is given to whom: subscriptions, their consumers, and where each of them reads. Pure.

1. A subscription's consumers are given every record from its cursor on that is not acknowledged, at least once, and
   nothing at or above `end`, the high watermark.
2. What a consumer was given and did not acknowledge is given again when it goes, and when it says so itself.
3. An exclusive or failover subscription has one consumer at a time that is given anything; of one that is key_shared,
   records of a key are given in their order, and to one consumer at a time.
4. Whoever reads at one offset waits at one station: its batch is read once for all of them, and leaves each connection
   once.
5. Consumers that get the same are one cohort: a batch for a thousand of them costs what it costs for one, and some ten
   nanoseconds for each. Nothing here costs anything per subscription while nothing happens.
6. What a consumer says that has gone, or was replaced, changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from struct import pack
from typing import NamedTuple, TypeAlias

from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.cohort import Cohort
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.key_slots import slot_of
from gnomon.broker.subscriptions.runs import Runs
from gnomon.broker.subscriptions.subscription import Consumer, Link, Subscription, SubscriptionType

Reader: TypeAlias = Cohort | Subscription

Keys: TypeAlias = Callable[[], Sequence[bytes | None]]
"""The keys of a batch's records by slot; called where they matter."""


class ConsumerRefused(Exception):
    """A subscription has other consumers, which this one does not go with; the text says which and what to do."""


class Part(NamedTuple):
    """Some consumers of one connection and what they get of a batch."""

    numbers: bytes
    """Theirs, packed as u32."""
    slots: bytes | None
    """The records' places in the batch, packed as u32; None stands for all."""


CONSUMERS_MAX = 1000
"""Of one subscription: each that comes or goes costs some 50 ns for each of the others."""

Parcels: TypeAlias = dict[Link, list[Part]]
"""One batch: who gets it, by connection."""


class Dispatcher:
    """The subscriptions of one partition; see the module's invariants."""

    def __init__(self, end: Offset) -> None:
        self.end = end
        """The high watermark."""
        self.subscriptions: dict[str, Subscription] = {}
        self.dirty: dict[Subscription, None] = {}
        """Those whose cursor has moved since it was stored last; whoever stores them takes them out."""
        self._stations: dict[Offset, dict[Reader, None]] = {}
        self._cohorts: dict[tuple[Link, Offset], Cohort] = {}
        self._held_up: dict[Reader, None] = {}
        """Readers whose connections take nothing now."""
        self._keyed: dict[Subscription, None] = {}
        """Those that are key_shared now: what they hold may wait for one connection of several."""
        self._delayed: list[tuple[float, int, Subscription, int, Offset, Offset]] = []
        self._sequence = 0

    # --- subscriptions and consumers ----------------------------------------------------------------------------

    def add(self, name: str, cursor: Cursor) -> Subscription:
        """Begins to know a subscription."""
        subscription = self.subscriptions[name] = Subscription(name, cursor)
        return subscription

    def remove(self, name: str) -> None:
        """Forgets a subscription, which has no consumers any more."""
        subscription = self.subscriptions.pop(name)
        assert not subscription.consumers, f"subscription {name!r} has consumers"
        self.dirty.pop(subscription, None)

    def check(self, subscription: Subscription, kind: SubscriptionType, client: str) -> None:
        """Whether one more consumer may come.

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
                f"exclusive subscription {subscription.name!r} has a consumer: close that one, subscribe as failover"
                " or shared, or use another name"
            )
        if len(others) >= CONSUMERS_MAX:
            raise ConsumerRefused(
                f"subscription {subscription.name!r} has {len(others)} consumers of this partition, which is the most:"
                " use fewer, or more partitions"
            )

    def attach(
        self, subscription: Subscription, kind: SubscriptionType, link: Link, number: int, client: str, permits: int
    ) -> Consumer:
        """Adds a consumer that was checked, in place of one of the same client."""
        for consumer in subscription.consumers:
            if consumer.client == client:
                self.detach(consumer)
        consumer = Consumer(link, number, client, permits, subscription)
        assert kind is subscription.kind or not subscription.consumers, "the consumer was not checked"
        self._unplace(subscription)
        first = not subscription.consumers
        subscription.kind = kind
        subscription.consumers += (consumer,)
        if first:
            subscription.begin()
            if subscription.keys is not None:
                self._keyed[subscription] = None
        elif subscription.shared:
            consumer.unacked = Runs()
            if subscription.keys is not None:
                subscription.keys.share_out(subscription.consumers)
        self._place(subscription)
        return consumer

    def detach(self, consumer: Consumer) -> None:
        """A consumer has gone: what it did not acknowledge is given again."""
        if consumer.gone:
            return
        subscription = consumer.subscription
        self._unplace(subscription)
        consumer.gone = True
        was_active = subscription.consumers[0] is consumer
        subscription.consumers = tuple(each for each in subscription.consumers if each is not consumer)
        if not subscription.consumers or (was_active and not subscription.shared):
            subscription.begin()
            self._keyed.pop(subscription, None)
        elif consumer.unacked is not None:
            if subscription.keys is not None:
                subscription.keys.gone(consumer)
                subscription.keys.share_out(subscription.consumers)
            subscription.give_again(list(consumer.unacked))
        self._place(subscription)

    # --- what consumers say -------------------------------------------------------------------------------------

    def flow(self, consumer: Consumer, permits: int) -> None:
        """A consumer takes so many records more."""
        if consumer.gone:
            return
        had = consumer.permits
        consumer.permits += permits
        if consumer.cohort is None and had <= 0:
            self._place_again(consumer.subscription)

    def ack(self, consumer: Consumer, first: Offset, end: Offset) -> None:
        """A consumer acknowledges the records from `first` up to and without `end`."""
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
        left = end - first
        for holder in (consumer, *subscription.consumers):  # who came back may speak of what another one has by now
            for run in holder.unacked.remove(first, end) if left > 0 and holder.unacked else ():
                subscription.keys.taken_back(*run)
                left -= run[1] - run[0]
        subscription.keys.acked(first, end)
        self._place_again(subscription)  # others may follow now

    def ack_up_to(self, consumer: Consumer, end: Offset) -> None:
        """A consumer acknowledges everything below `end`; where several share, others may hold some of that."""
        subscription = consumer.subscription
        assert consumer.gone or not subscription.shared, f"subscription {subscription.name!r} is shared"
        self.ack(consumer, subscription.cursor.mark_delete, end)

    def nack(self, consumer: Consumer, first: Offset, end: Offset, due: float, now: float) -> None:
        """A consumer will not acknowledge these records: they are given again at `due`."""
        if consumer.gone:
            return
        subscription = consumer.subscription
        end = min(end, self.end)
        if consumer.unacked is not None:
            runs = consumer.unacked.remove(first, end)
            if subscription.keys is not None:
                for run in runs:
                    subscription.keys.taken_back(*run)
        else:
            runs = [(first, end)] if consumer is subscription.consumers[0] else []
        for start, stop in runs:
            self._sequence += 1
            entry = (due, self._sequence, subscription, subscription.life, Offset(start), Offset(stop))
            heapq.heappush(self._delayed, entry)
        if subscription.keys is not None:
            self._place_again(subscription)
        self.tick(now)

    def seek(self, subscription: Subscription, offset: Offset) -> None:
        """Moves the cursor of a subscription without consumers; what it acknowledged before is forgotten."""
        assert not subscription.consumers, f"subscription {subscription.name!r} has consumers"
        subscription.cursor.seek(offset)
        subscription.begin()
        self.dirty.pop(subscription, None)

    # --- what else happens --------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """When `tick` has something to do."""
        return self._delayed[0][0] if self._delayed else None

    def tick(self, now: float) -> None:
        """Time has passed: records whose delay is over are wanted again."""
        while self._delayed and self._delayed[0][0] <= now:
            _, _, subscription, life, first, end = heapq.heappop(self._delayed)
            if subscription.life == life and subscription.consumers:
                self._unplace(subscription)
                subscription.give_again([(first, end)])
                self._place(subscription)

    def advanced(self, end: Offset) -> None:
        """The high watermark has moved."""
        self.end = max(self.end, end)

    def trimmed(self, start: Offset) -> list[tuple[Subscription, Offset]]:
        """The log begins at `start` now: whoever stands below goes on there.

        Returns:
            Those who have missed something, and from where on. They are not stored anew before they acknowledge
            something: until then whoever comes next is to be told, also by another broker.
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

    def link_ready(self, link: Link) -> None:
        """A connection takes deliveries again."""
        for subscription in [each for each in self._keyed if _concerns(each, link)]:
            self._place_again(subscription)
        for reader in [each for each in self._held_up if _concerns(each, link)]:
            del self._held_up[reader]
            if isinstance(reader, Cohort):
                self._stations.setdefault(reader.position, {})[reader] = None
            else:
                self._place(reader)

    # --- giving -------------------------------------------------------------------------------------------------

    def wanted(self, but: Iterable[Offset] = ()) -> Offset | None:
        """The next offset whose batch somebody takes now, other than those in `but`; None where there is none."""
        while True:
            offset = next((each for each in self._stations if each < self.end and each not in but), None)
            if offset is None:
                return None
            readers = self._stations[offset]
            for reader in [each for each in readers if not each.ready()]:
                self._leave_station(reader, offset)
                self._held_up[reader] = None
            if readers:
                return offset

    def give(self, at: Offset, base: Offset, end: Offset, keys: Keys) -> Parcels:
        """The batch [base, end) is given to those who wait for offset `at`, which it covers."""
        parcels: Parcels = {}
        for reader in list(self._stations.get(at, ())):
            self._leave_station(reader, at)
            if isinstance(reader, Cohort):
                self._give_cohort(reader, base, end, parcels)
                continue
            reader.station = None
            if reader.keys is not None:
                self._give_by_key(reader, base, end, keys, parcels)
            else:
                self._give_one(reader, base, end, parcels)
            reader.position = max(reader.position, end)
            self._place(reader)
        return parcels

    def _give_cohort(self, cohort: Cohort, base: Offset, end: Offset, parcels: Parcels) -> None:
        del self._cohorts[cohort.link, cohort.position]
        cohort.release_idle()
        if not cohort.members:
            return
        position = cohort.position
        slots = None if position <= base else _packed(range(position - base, end - base))
        parcels.setdefault(cohort.link, []).append(Part(cohort.numbers(), slots))
        cohort.given += end - max(base, position)
        cohort.position = end
        self._stand(cohort)

    def _give_one(self, subscription: Subscription, base: Offset, end: Offset, parcels: Parcels) -> None:
        """To the next consumer that takes something: all of the batch that is wanted."""
        consumer = self._next_taker(subscription)
        runs = subscription.wanted_in(base, end)
        if not runs:
            return
        consumer.permits -= sum(stop - first for first, stop in runs)
        if consumer.unacked is not None:
            for first, stop in runs:
                consumer.unacked.add(first, stop)
        slots = None if runs == [(base, end)] else _packed(*(range(first - base, stop - base) for first, stop in runs))
        parcels.setdefault(consumer.link, []).append(Part(pack("<I", consumer.number), slots))

    @staticmethod
    def _next_taker(subscription: Subscription) -> Consumer:
        consumers = subscription.consumers
        if not subscription.shared:
            return consumers[0]
        for step in range(1, len(consumers) + 1):
            at = (subscription.turn + step) % len(consumers)
            if consumers[at].takes:
                subscription.turn = at
                return consumers[at]
        raise AssertionError(f"nobody of subscription {subscription.name!r} takes anything")

    @staticmethod
    def _give_by_key(subscription: Subscription, base: Offset, end: Offset, keys: Keys, parcels: Parcels) -> None:
        slots = subscription.keys
        assert slots is not None
        key_of = keys()
        slot_of_all = None if len(key_of) == end - base else slot_of(None, base)  # no key is known: one gets it whole
        given: dict[Consumer, list[int]] = {}
        for first, stop in subscription.wanted_in(base, end):
            for offset in range(first, stop):
                slot = slot_of(key_of[offset - base], offset) if slot_of_all is None else slot_of_all
                consumer = slots.give(offset, slot)
                if consumer is not None:
                    consumer.permits -= 1
                    given.setdefault(consumer, []).append(offset - base)
        for consumer, places in given.items():
            assert consumer.unacked is not None
            for place in places:
                consumer.unacked.add(base + place, base + place + 1)
            parcels.setdefault(consumer.link, []).append(Part(pack("<I", consumer.number), _packed(places)))

    # --- where readers stand ------------------------------------------------------------------------------------

    def _place_again(self, subscription: Subscription) -> None:
        self._unplace(subscription)
        self._place(subscription)

    def _place(self, subscription: Subscription) -> None:
        """Has a subscription wait where it is to be given something next, if anybody takes anything."""
        if not subscription.consumers or not subscription.permitted():
            return
        if subscription.shared or subscription.skips():
            wanted = subscription.wanted()
            if wanted is not None and (subscription.shared or subscription.skips()):
                subscription.station = wanted
                self._stations.setdefault(wanted, {})[subscription] = None
                return
            if subscription.shared:
                return
        consumer = subscription.consumers[0]
        key = (consumer.link, subscription.position)
        cohort = self._cohorts.get(key)
        if cohort is None:
            cohort = Cohort(*key)
            self._stand(cohort)
        cohort.join(consumer)

    def _unplace(self, subscription: Subscription) -> None:
        if subscription.station is not None:
            self._leave_station(subscription, subscription.station)
            subscription.station = None
        self._held_up.pop(subscription, None)
        for consumer in subscription.consumers:
            cohort = consumer.cohort
            if cohort is not None:
                cohort.leave(consumer)
                if not cohort.members:
                    self._disband(cohort)

    def _disband(self, cohort: Cohort) -> None:
        del self._cohorts[cohort.link, cohort.position]
        self._leave_station(cohort, cohort.position)
        self._held_up.pop(cohort, None)

    def _stand(self, cohort: Cohort) -> None:
        """Has a cohort wait at its position, with any other one of its connection that is there."""
        key = (cohort.link, cohort.position)
        there = self._cohorts.get(key)
        if there is not None:
            if len(there.members) >= len(cohort.members):
                there.absorb(cohort)
                return
            cohort.absorb(there)
            self._leave_station(there, there.position)
            self._held_up.pop(there, None)
        self._cohorts[key] = cohort
        self._stations.setdefault(cohort.position, {})[cohort] = None

    def _leave_station(self, reader: Reader, offset: Offset) -> None:
        readers = self._stations.get(offset)
        if readers is not None:
            readers.pop(reader, None)
            if not readers:
                del self._stations[offset]


def _concerns(reader: Reader, link: Link) -> bool:
    if isinstance(reader, Cohort):
        return reader.link is link
    return any(consumer.link is link for consumer in reader.consumers)


def _packed(*places: Iterable[int]) -> bytes:
    every = [place for some in places for place in some]
    return pack(f"<{len(every)}I", *every)
