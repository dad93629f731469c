"""The dispatcher against a model that knows the holder of every record: any order of events, all types.

Its allowance and its slices are small: events arrive in the middle of the delivery of a batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from struct import unpack

import pytest
from dispatcher_bench import OpenChannel
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gnomon.broker.subscriptions import dispatcher, key_slots
from gnomon.broker.subscriptions import subscription as subscription_module
from gnomon.broker.subscriptions.allowance import UNLIMITED
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.dispatcher import ConsumerRefused, Dispatcher, Parcels
from gnomon.broker.subscriptions.key_slots import slot_of
from gnomon.broker.subscriptions.subscription import AttachedConsumer, Subscription, SubscriptionType
from gnomon.log.entry import Offset

SMALL = (
    (dispatcher, "LOOKED_AT_ONCE", 2),
    (dispatcher, "PLACES_MAX", 2),
    (dispatcher, "RUNS_MAX", 1),
    (subscription_module, "PLACES_MAX", 2),
    (subscription_module, "RUNS_MAX", 1),
    (key_slots, "STRETCH_RECORDS", 3),
)
NAMES = ("a", "b", "c", "d")
KEYS = 3
CHANNELS = 2


def key_of(offset: int) -> bytes:
    return b"%d" % (offset % KEYS)


class ModelOfSubscription:
    """The holder of each record."""

    def __init__(self) -> None:
        self.acked: set[int] = set()
        self.have: dict[int, AttachedConsumer] = {}
        """Records given, and neither acknowledged nor handed back."""
        self.delayed: dict[int, float] = {}
        """Negatively acknowledged records: not given before that time."""
        self.handed_back = False
        """Whether records were handed back, so that the order of a key may have changed."""


class DispatcherMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bases = [0]
        self.end = 0
        self.units_per_turn = UNLIMITED
        self.start = 0
        self.now = 0.0
        self.dispatcher = Dispatcher(Offset(0))
        self.channels = [OpenChannel() for _ in range(CHANNELS)]
        self.models: dict[str, ModelOfSubscription] = {}
        self.consumers: dict[int, AttachedConsumer] = {}
        self.permits: dict[int, int] = {}
        self.numbers = 0
        self.idle = True
        """Whether all records that can be given have been given."""
        self.patch = pytest.MonkeyPatch()
        for module, constant, value in SMALL:
            self.patch.setattr(module, constant, value)
        for name in NAMES:
            self.dispatcher.add(name, Cursor(Offset(0)))
            self.models[name] = ModelOfSubscription()

    # --- the driver's part --------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Runs one turn, or many if the allowance is large."""
        self.dispatcher.allowance.left = self.units_per_turn
        self.idle = False
        while self.dispatcher.allowance.left > 0:
            wanted = self.dispatcher.wanted()
            if wanted is None:
                due = self.dispatcher.next_due()
                self.idle = (due is None or due > self.now) and self.dispatcher.allowance.left > 0
                return
            left = self.dispatcher.allowance.left
            at = bisect_right(self.bases, wanted) - 1
            base, end = self.bases[at], self.bases[at + 1]
            parcels = self.dispatcher.give(
                wanted,
                Offset(base),
                Offset(end),
                lambda first, count: [slot_of(key_of(each), each) for each in range(first, first + count)],
            )
            for consumer, offset in self.given(parcels, base, end):
                self.note(consumer, offset)
            self.charge(parcels, base, end)
            assert self.dispatcher.allowance.left < left, "it never ends"

    def given(self, parcels: Parcels, base: int, end: int) -> Iterator[tuple[AttachedConsumer, int]]:
        for channel, parts in parcels.items():
            for numbers, slots in parts:
                for number in unpack(f"<{len(numbers) // 4}I", numbers):
                    consumer = self.consumers[number]
                    assert consumer.channel is channel
                    assert channel.ready, "a connection that takes nothing was given something"
                    for slot in range(end - base) if slots is None else unpack(f"<{len(slots) // 4}I", slots):
                        yield consumer, base + slot

    def note(self, consumer: AttachedConsumer, offset: int) -> None:
        subscription = consumer.subscription
        model = self.models[subscription.name]
        assert offset < self.end
        assert offset not in model.acked, "an acknowledged record was given"
        assert offset not in model.have, "a record was given though somebody has it"
        assert model.delayed.pop(offset, 0.0) <= self.now, "a record was given before its delay was over"
        assert consumer in subscription.consumers
        if not subscription.shared:
            assert consumer is subscription.consumers[0]
        if subscription.kind is SubscriptionType.KEY_SHARED:
            of_key = {each: who for each, who in model.have.items() if each % KEYS == offset % KEYS}
            assert all(who is consumer for who in of_key.values()), "two consumers have records of one key"
            if not model.handed_back:
                left = [
                    each
                    for each in range(offset % KEYS, offset, KEYS)
                    if each >= self.start and each not in model.acked and each not in model.have
                ]
                assert left == [], "a record has overtaken another one of its key"
        model.have[offset] = consumer

    def charge(self, parcels: Parcels, base: int, end: int) -> None:
        """Deducts permits; every consumer that got a record had some."""
        counts: dict[int, int] = {}
        for consumer, _ in self.given(parcels, base, end):
            counts[consumer.number] = counts.get(consumer.number, 0) + 1
        for number, count in counts.items():
            assert self.permits[number] > 0, "somebody without permits was given something"
            self.permits[number] -= count

    # --- rules --------------------------------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
    def append(self, sizes: list[int]) -> None:
        for size in sizes:
            self.end += size
            self.bases.append(self.end)
        self.dispatcher.advanced(Offset(self.end))
        self.pump()

    @rule(
        name=st.sampled_from(NAMES),
        kind=st.sampled_from(SubscriptionType),
        channel=st.integers(0, CHANNELS - 1),
        permits=st.integers(1, 12),
    )
    def subscribe(self, name: str, kind: SubscriptionType, channel: int, permits: int) -> None:
        subscription = self.dispatcher.subscriptions[name]
        client = str(self.numbers)
        try:
            self.dispatcher.check(subscription, kind, client)
        except ConsumerRefused:
            assert subscription.consumers
            assert kind is SubscriptionType.EXCLUSIVE or kind is not subscription.kind
            return
        consumer = self.dispatcher.attach(subscription, kind, self.channels[channel], self.numbers, client, permits)
        self.consumers[self.numbers] = consumer
        self.permits[self.numbers] = permits
        self.numbers += 1
        self.pump()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer = self.some_consumer(data)
        subscription = consumer.subscription
        model = self.models[subscription.name]
        active = subscription.consumers[0] is consumer
        self.dispatcher.detach(consumer)
        del self.consumers[consumer.number]
        model.handed_back = True
        if not subscription.consumers or (active and not subscription.shared):
            model.have.clear()
            model.delayed.clear()
        else:
            for offset in [each for each, who in model.have.items() if who is consumer]:
                del model.have[offset]
        if not subscription.consumers:
            model.handed_back = False
        self.pump()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), permits=st.integers(1, 10))
    def flow(self, data: st.DataObject, permits: int) -> None:
        consumer = self.some_consumer(data)
        self.permits[consumer.number] += permits
        self.dispatcher.flow(consumer, permits)
        self.pump()

    @precondition(lambda self: any(model.have for model in self.models.values()))
    @rule(data=st.data(), more=st.integers(0, 6))
    def ack(self, data: st.DataObject, more: int) -> None:
        model, offset, consumer = self.some_given(data)
        end = offset
        while end <= offset + more and model.have.get(end) is consumer:
            end += 1
        self.dispatcher.ack(consumer, Offset(offset), Offset(end))
        for each in range(offset, end):
            del model.have[each]
            model.acked.add(each)
        self.pump()

    @precondition(lambda self: any(model.have for model in self.models.values()))
    @rule(data=st.data())
    def ack_what_another_has(self, data: st.DataObject) -> None:
        """Acknowledges as a consumer that reconnected: a record that it received before its connection was lost."""
        model, offset, holder = self.some_given(data)
        consumer = data.draw(st.sampled_from(holder.subscription.consumers))
        self.dispatcher.ack(consumer, Offset(offset), Offset(offset + 1))
        del model.have[offset]
        model.acked.add(offset)
        self.pump()

    @precondition(lambda self: any(model.have for model in self.models.values()))
    @rule(data=st.data())
    def ack_up_to(self, data: st.DataObject) -> None:
        model, offset, consumer = self.some_given(data)
        if consumer.subscription.shared:
            return
        self.dispatcher.ack_up_to(consumer, Offset(offset + 1))
        for each in range(offset + 1):
            model.have.pop(each, None)
            model.delayed.pop(each, None)
            model.acked.add(each)
        self.pump()

    @precondition(lambda self: any(model.have for model in self.models.values()))
    @rule(data=st.data(), delay=st.sampled_from((0.0, 1.0, 3.0)))
    def nack(self, data: st.DataObject, delay: float) -> None:
        model, offset, consumer = self.some_given(data)
        del model.have[offset]
        model.delayed[offset] = self.now + delay
        model.handed_back = True
        self.dispatcher.nack(consumer, Offset(offset), Offset(offset + 1), self.now + delay, self.now)
        self.pump()

    @rule(units=st.sampled_from((1, 10, 50, UNLIMITED)))
    def have_turns(self, units: int) -> None:
        self.units_per_turn = self.dispatcher.allowance.left = units
        self.dispatcher.tick(self.now)
        self.pump()

    @rule(seconds=st.sampled_from((0.5, 1.0, 3.0)))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.dispatcher.tick(self.now)
        self.pump()

    @rule(channel=st.integers(0, CHANNELS - 1))
    def block(self, channel: int) -> None:
        self.channels[channel].ready = False

    @rule(channel=st.integers(0, CHANNELS - 1))
    def unblock(self, channel: int) -> None:
        self.channels[channel].ready = True
        self.dispatcher.channel_ready(self.channels[channel])
        self.pump()

    @precondition(lambda self: self.end)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        subscription = self.dispatcher.subscriptions[data.draw(st.sampled_from(NAMES))]
        offset = data.draw(st.integers(self.start, self.end))
        for consumer in subscription.consumers:
            self.dispatcher.detach(consumer)
            del self.consumers[consumer.number]
        self.dispatcher.seek(subscription, Offset(offset))
        model = self.models[subscription.name] = ModelOfSubscription()
        model.acked = set(range(offset))

    @precondition(lambda self: self.end)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.dispatcher.trimmed(Offset(self.start))
        for name, model in self.models.items():
            for each in range(self.start):
                if self.dispatcher.subscriptions[name].kind is not SubscriptionType.KEY_SHARED:
                    model.have.pop(each, None)  # for KEY_SHARED it keeps its key with its consumer
                model.delayed.pop(each, None)
                model.acked.add(each)
        self.pump()

    def some_consumer(self, data: st.DataObject) -> AttachedConsumer:
        return self.consumers[data.draw(st.sampled_from(sorted(self.consumers)))]

    def some_given(self, data: st.DataObject) -> tuple[ModelOfSubscription, int, AttachedConsumer]:
        name = data.draw(st.sampled_from([name for name in NAMES if self.models[name].have]))
        model = self.models[name]
        offset = data.draw(st.sampled_from(sorted(model.have)))
        return model, offset, model.have[offset]

    # --- invariants --------------------------------------------------------------------------------------------

    @invariant()
    def cursors_are_as_the_model_says(self) -> None:
        for name, model in self.models.items():
            subscription = self.dispatcher.subscriptions[name]
            assert subscription.backlog(Offset(self.end)) == self.end - len(model.acked)

    @invariant()
    def slots_know_the_records_that_were_read_and_are_not_acknowledged(self) -> None:
        for name, model in self.models.items():
            keys = self.dispatcher.subscriptions[name].keys
            if keys is None:
                continue
            held = [offset for offsets in keys._held.values() for offset in offsets]
            given = {offset for offsets in keys._given.values() for offset in offsets}
            assert keys._held_count == len(held) == len(set(held))
            assert all(offsets == sorted(offsets) for offsets in keys._held.values())
            assert given == set(model.have)
            assert given.isdisjoint(held)
            assert given.union(held) <= set(keys._slots)

    @invariant()
    def whoever_could_be_given_something_was(self) -> None:
        for subscription in self.dispatcher.subscriptions.values() if self.idle else ():
            if subscription.keys is None and any(self.could_take(consumer) for consumer in active(subscription)):
                assert self.missing(subscription) == []

    def teardown(self) -> None:
        """Once all connections accept frames and all consumers have permits, every record is delivered."""
        self.patch.undo()
        self.units_per_turn = self.dispatcher.allowance.left = UNLIMITED
        self.now += 10.0
        self.dispatcher.tick(self.now)
        for channel in self.channels:
            channel.ready = True
            self.dispatcher.channel_ready(channel)
        for consumer in list(self.consumers.values()):
            self.permits[consumer.number] += 10_000
            self.dispatcher.flow(consumer, 10_000)
        self.pump()
        for _ in range(1000):  # a key changes its consumer once its given records are acknowledged
            given = [(model, offset) for model in self.models.values() for offset in model.have]
            if not given:
                break
            for model, offset in given:
                consumer = model.have.pop(offset)
                model.acked.add(offset)
                self.dispatcher.ack(consumer, Offset(offset), Offset(offset + 1))
            self.pump()
        for subscription in self.dispatcher.subscriptions.values():
            if subscription.consumers:
                assert self.missing(subscription) == []
                assert subscription.cursor.mark_delete == self.end

    def could_take(self, consumer: AttachedConsumer) -> bool:
        return self.permits[consumer.number] > 0 and consumer.channel.ready

    def missing(self, subscription: Subscription) -> list[int]:
        model = self.models[subscription.name]
        return [
            offset
            for offset in range(self.start, self.end)
            if offset not in model.acked and offset not in model.have and model.delayed.get(offset, 0.0) <= self.now
        ]


def active(subscription: Subscription) -> tuple[AttachedConsumer, ...]:
    return subscription.consumers if subscription.shared else subscription.consumers[:1]


TestDispatcher = DispatcherMachine.TestCase
TestDispatcher.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
