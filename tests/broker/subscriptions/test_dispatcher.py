"""Who is given what of a partition; numbers cite the invariants of `dispatcher`, `cohort` and `key_slots`."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import pairwise
from struct import unpack

import pytest

from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions import dispatcher, key_slots
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.dispatcher import ConsumerRefused, Dispatcher
from gnomon.broker.subscriptions.key_slots import SLOTS, KeySlots, slot_of
from gnomon.broker.subscriptions.runs import Runs
from gnomon.broker.subscriptions.subscription import Consumer, Link, Subscription, SubscriptionType

BATCH = 10
EXCLUSIVE, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER
SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED


class Bench:
    """A dispatcher of a log whose batches have ten records each."""

    def __init__(self, end: int = 0) -> None:
        self.dispatcher = Dispatcher(Offset(end))
        self.frames: list[tuple[Link, int, int, list[tuple[int, ...]]]] = []
        """Link, offset of the batch, and the numbers and slots of its parts."""
        self.reads = 0
        self.keys: Sequence[bytes | None] = [b"%d" % each for each in range(BATCH)]
        self._numbers = 0

    def subscribe(
        self,
        name: str,
        kind: SubscriptionType = EXCLUSIVE,
        *,
        link: Link | None = None,
        permits: int = 1000,
        at: int = 0,
        client: str | None = None,
    ) -> Consumer:
        known = self.dispatcher.subscriptions
        subscription = known.get(name) or self.dispatcher.add(name, Cursor(Offset(at)))
        self._numbers += 1
        client = client or str(self._numbers)
        self.dispatcher.check(subscription, kind, client)
        return self.dispatcher.attach(subscription, kind, link or Link(), self._numbers, client, permits)

    def write(self, batches: int = 1) -> None:
        self.dispatcher.advanced(Offset(self.dispatcher.end + batches * BATCH))

    def pump(self) -> dict[int, list[int]]:
        """Gives all that can be given: offsets by the number of the consumer."""
        given: dict[int, list[int]] = {}
        while (wanted := self.dispatcher.wanted()) is not None:
            self.reads += 1
            base = wanted // BATCH * BATCH
            parcels = self.dispatcher.give(wanted, Offset(base), Offset(base + BATCH), lambda: self.keys)
            for link, parts in parcels.items():
                named = [unpack(f"<{len(numbers) // 4}I", numbers) for numbers, _ in parts]
                self.frames.append((link, base, sum(map(len, named)), named))
                for numbers, (_, slots) in zip(named, parts, strict=True):
                    places = range(BATCH) if slots is None else unpack(f"<{len(slots) // 4}I", slots)
                    for number in numbers:
                        given.setdefault(number, []).extend(base + place for place in places)
        return given


def test_a_batch_for_a_thousand_consumers_of_a_link_is_read_once_and_is_one_part() -> None:  # 4, 5
    bench, link = Bench(), Link()
    for number in range(1000):
        bench.subscribe(f"reader-{number}", link=link)
    bench.write()
    assert len(bench.pump()) == 1000
    assert bench.reads == 1
    assert [(where, base, count, len(parts)) for where, base, count, parts in bench.frames] == [(link, 0, 1000, 1)]


def test_consumers_that_catch_up_join_those_that_wait_at_the_end() -> None:  # 5
    bench, link = Bench(30), Link()
    bench.subscribe("at the end", link=link, at=30)
    bench.subscribe("behind", link=link, at=0)
    bench.pump()
    bench.frames.clear()
    bench.write()
    bench.pump()
    assert [len(parts) for _, _, _, parts in bench.frames] == [1]


def test_who_begins_in_the_midst_of_a_batch_gets_the_rest_of_it() -> None:
    bench = Bench(10)
    consumer = bench.subscribe("late", at=7)
    assert bench.pump() == {consumer.number: [7, 8, 9]}


def test_nothing_is_given_at_or_above_the_end() -> None:  # 1
    bench = Bench()
    bench.subscribe("early")
    assert bench.pump() == {}


def test_who_has_no_permits_is_given_nothing_and_the_others_go_on() -> None:  # cohort 2, 3
    bench, link = Bench(), Link()
    poor = bench.subscribe("poor", link=link, permits=5)
    rich = bench.subscribe("rich", link=link)
    bench.write(3)
    given = bench.pump()
    assert given[poor.number] == list(range(10)), "a batch is given whole"
    assert given[rich.number] == list(range(30))
    bench.dispatcher.flow(poor, 5)
    assert bench.pump() == {}, "it owes five"
    bench.dispatcher.flow(poor, 1)
    assert bench.pump() == {poor.number: list(range(10, 20))}


def test_a_link_that_takes_nothing_holds_up_its_own_consumers_alone() -> None:
    bench, slow = Bench(), Link()
    one, two = bench.subscribe("one", link=slow), bench.subscribe("two")
    slow.ready = False
    bench.write()
    assert list(bench.pump()) == [two.number]
    slow.ready = True
    bench.dispatcher.link_ready(slow)
    assert list(bench.pump()) == [one.number]


def test_a_second_exclusive_consumer_is_refused_but_one_of_the_same_client_takes_its_place() -> None:  # 3
    bench = Bench(10)
    first = bench.subscribe("one", client="me")
    with pytest.raises(ConsumerRefused, match="has a consumer"):
        bench.subscribe("one", client="you")
    bench.pump()
    again = bench.subscribe("one", client="me")
    assert bench.pump() == {again.number: list(range(10))}
    assert first not in bench.dispatcher.subscriptions["one"].consumers


def test_who_was_replaced_has_nothing_to_say_any_more() -> None:
    bench = Bench(10)
    before = bench.subscribe("one", client="me")
    now = bench.subscribe("one", client="me")
    bench.dispatcher.detach(now)
    bench.dispatcher.nack(before, Offset(0), Offset(5), due=0.0, now=0.0)
    bench.dispatcher.flow(before, 5)
    assert bench.pump() == {}


@pytest.mark.parametrize("kind", SubscriptionType)
def test_what_was_replaced_acknowledges_nothing_any_more(kind: SubscriptionType) -> None:  # 6
    bench = Bench(10)
    before = bench.subscribe("one", kind, client="me")
    bench.pump()
    now = bench.subscribe("one", kind, client="me")
    bench.dispatcher.ack(before, Offset(1), Offset(3))
    bench.dispatcher.ack_up_to(before, Offset(5))
    assert bench.pump() == {now.number: list(range(10))}
    bench.dispatcher.ack_up_to(before, Offset(5))
    bench.dispatcher.nack(before, Offset(5), Offset(10), due=0.0, now=0.0)
    assert bench.pump() == {}
    assert bench.dispatcher.subscriptions["one"].cursor.mark_delete == 0


def test_another_type_is_refused_while_there_are_consumers() -> None:
    bench = Bench()
    consumer = bench.subscribe("one", SHARED)
    with pytest.raises(ConsumerRefused, match="is shared as long as it has its consumers"):
        bench.subscribe("one", FAILOVER)
    bench.dispatcher.detach(consumer)
    bench.subscribe("one", FAILOVER)


def test_what_was_acknowledged_ahead_is_left_out() -> None:  # 1
    bench = Bench(20)
    consumer = bench.subscribe("one")
    bench.pump()
    bench.dispatcher.ack(consumer, Offset(3), Offset(5))
    bench.dispatcher.ack(consumer, Offset(8), Offset(12))
    bench.dispatcher.detach(consumer)
    again = bench.subscribe("one")
    assert bench.pump() == {again.number: [0, 1, 2, 5, 6, 7, *range(12, 20)]}


def test_an_acknowledgement_beyond_the_end_skips_nothing() -> None:
    bench = Bench(10)
    consumer = bench.subscribe("one")
    bench.dispatcher.ack(consumer, Offset(0), Offset(1000))
    assert bench.dispatcher.subscriptions["one"].cursor.mark_delete == 10


def test_shared_batches_go_round_and_come_to_another_when_their_consumer_goes() -> None:  # 2
    bench = Bench(40)
    one = bench.subscribe("s", SHARED, permits=1)
    two = bench.subscribe("s", SHARED)
    given = bench.pump()
    assert sorted(given[one.number] + given[two.number]) == list(range(40))
    bench.dispatcher.ack(one, Offset(given[one.number][0]), Offset(given[one.number][0] + 4))
    bench.dispatcher.detach(one)
    assert bench.pump() == {two.number: given[one.number][4:]}


def test_the_next_failover_consumer_begins_at_the_first_record_that_is_not_acknowledged() -> None:  # 3
    bench = Bench(10)
    one, two = bench.subscribe("f", FAILOVER), bench.subscribe("f", FAILOVER)
    assert list(bench.pump()) == [one.number]
    bench.dispatcher.ack(one, Offset(0), Offset(6))
    bench.dispatcher.detach(one)
    assert bench.pump() == {two.number: [6, 7, 8, 9]}


@pytest.mark.parametrize("kind", list(SubscriptionType))
def test_a_record_given_back_comes_again_after_its_delay_unless_it_is_acknowledged(kind: SubscriptionType) -> None:
    bench = Bench(10)
    consumer = bench.subscribe("n", kind)
    bench.pump()
    bench.dispatcher.nack(consumer, Offset(4), Offset(6), due=2.0, now=0.0)
    assert bench.dispatcher.next_due() == 2.0
    bench.dispatcher.ack(consumer, Offset(5), Offset(6))
    bench.dispatcher.tick(1.9)
    assert bench.pump() == {}
    bench.dispatcher.tick(2.0)
    assert bench.pump() == {consumer.number: [4]}


def test_what_was_to_come_again_is_void_once_reading_begins_anew() -> None:
    bench = Bench(10)
    consumer = bench.subscribe("n")
    bench.pump()
    bench.dispatcher.nack(consumer, Offset(4), Offset(5), due=2.0, now=0.0)
    bench.dispatcher.detach(consumer)
    again = bench.subscribe("n")
    assert bench.pump() == {again.number: list(range(10))}
    bench.dispatcher.tick(3.0)
    assert bench.pump() == {}


def test_a_key_stays_with_its_consumer_until_what_it_was_given_is_acknowledged() -> None:  # key_slots 2
    bench = Bench(10)
    bench.keys = [b"k"] * BATCH
    one = bench.subscribe("k", KEY_SHARED)
    bench.pump()
    others = [bench.subscribe("k", KEY_SHARED) for _ in range(5)]
    slots = bench.dispatcher.subscriptions["k"].keys
    assert slots is not None
    slots.share_out([*others])  # whoever owns the key now, it is not the first one
    bench.write()
    assert bench.pump() == {}
    bench.dispatcher.ack(one, Offset(0), Offset(9))
    assert bench.pump() == {}
    bench.dispatcher.ack(one, Offset(9), Offset(10))
    (given,) = bench.pump().values()
    assert given == list(range(10, 20))


def test_a_key_stays_with_its_consumer_also_where_what_it_was_given_is_gone() -> None:  # key_slots 2
    bench = Bench(10)
    bench.keys = [b"k"] * BATCH
    one = bench.subscribe("k", KEY_SHARED)
    bench.pump()
    other = bench.subscribe("k", KEY_SHARED)
    slots = bench.dispatcher.subscriptions["k"].keys
    assert slots is not None
    slots.share_out([other])
    bench.write(2)
    assert bench.pump() == {}
    bench.dispatcher.trimmed(Offset(15))
    assert bench.pump() == {}, "the first one is not done with what it has"
    bench.dispatcher.nack(one, Offset(0), Offset(3), 1.0, 0.0)
    bench.dispatcher.tick(1.0)
    bench.dispatcher.ack(one, Offset(3), Offset(10))
    assert bench.pump() == {other.number: list(range(15, 30))}
    bench.dispatcher.ack(other, Offset(15), Offset(30))
    assert not slots._slots, "nothing is remembered of what is gone"


def test_a_key_is_free_again_whoever_acknowledges_what_was_given_of_it() -> None:  # key_slots 2
    """A client whose connection was lost comes back, and has acknowledged meanwhile what another one has by now."""
    bench = Bench(10)
    first, other = (bench.subscribe("k", KEY_SHARED, client=client) for client in "ab")
    bench.pump()
    bench.dispatcher.detach(first)
    bench.pump()
    back = bench.subscribe("k", KEY_SHARED, client="a")
    bench.dispatcher.ack(back, Offset(0), Offset(10))
    bench.dispatcher.ack(other, Offset(0), Offset(10))
    bench.write()
    given = bench.pump()
    assert sorted(given[back.number] + given[other.number]) == list(range(10, 20))


def test_a_consumer_without_permits_holds_up_its_own_keys_alone() -> None:  # key_slots 3
    bench = Bench()
    poor, rich = bench.subscribe("k", KEY_SHARED, permits=1), bench.subscribe("k", KEY_SHARED)
    bench.write(4)
    given = bench.pump()
    assert len(given[poor.number]) == 1
    theirs = [offset for offset in range(40) if offset % BATCH in {each % BATCH for each in given[rich.number]}]
    assert given[rich.number] == theirs
    bench.dispatcher.flow(poor, 1000)
    more = bench.pump()
    assert sorted(given[poor.number] + more[poor.number] + given[rich.number]) == list(range(40))
    assert more[poor.number] == sorted(more[poor.number])


def test_of_a_batch_whose_keys_cannot_be_read_one_consumer_gets_all() -> None:
    bench = Bench()
    consumers = [bench.subscribe("k", KEY_SHARED) for _ in range(4)]
    bench.keys = []
    bench.write(1)
    given = bench.pump()
    assert [given.get(each.number) for each in consumers].count(list(range(BATCH))) == 1
    assert len(given) == 1


def test_nothing_is_read_on_for_a_consumer_that_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    monkeypatch.setattr(key_slots, "KNOWN_MAX", 3 * BATCH)
    bench = Bench()
    consumer = bench.subscribe("k", KEY_SHARED, permits=1 << 40)
    bench.write(10)
    assert bench.pump()[consumer.number] == list(range(3 * BATCH))
    bench.dispatcher.ack(consumer, Offset(0), Offset(1))
    assert bench.pump()[consumer.number] == list(range(3 * BATCH, 4 * BATCH))


def test_a_subscription_has_so_many_consumers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "CONSUMERS_MAX", 3)
    bench = Bench()
    for client in "abc":
        bench.subscribe("s", SHARED, client=client)
    with pytest.raises(ConsumerRefused, match="has 3 consumers of this partition"):
        bench.subscribe("s", SHARED, client="d")
    bench.subscribe("s", SHARED, client="c")


def test_slots_are_shared_out_evenly_and_few_change_hands() -> None:  # key_slots 1
    slots, subscription = KeySlots(), Subscription("k", Cursor(Offset(0)))
    consumers = [Consumer(Link(), number, "", 1, subscription) for number in range(5)]
    owners = []
    for count in (1, 2, 3, 4, 5, 4, 3):
        slots.share_out(consumers[:count])
        owners.append([slots.give(offset, offset) for offset in range(SLOTS)])
        for offset in range(SLOTS):
            slots.taken_back(offset, offset + 1)
        slots.acked(0, SLOTS)
    for now in owners:
        counts = [now.count(consumer) for consumer in set(now)]
        assert max(counts) - min(counts) <= 1
    moved = [sum(a is not b for a, b in zip(before, now, strict=True)) for before, now in pairwise(owners)]
    assert max(moved) <= SLOTS / 2
    assert moved[3] <= SLOTS / 5 + 1
    assert slot_of(b"key", 1) == slot_of(b"key", 2)


def test_keys_that_are_alike_are_spread() -> None:
    for prefix in (b"", b"flight ", b"customer-000"):
        for count in (10, 100, 1000):
            slots = [slot_of(prefix + b"%d" % number, 0) for number in range(count)]
            upper = sum(slot >= SLOTS / 2 for slot in slots)
            assert 0.25 * count <= upper <= 0.75 * count, (prefix, count)


def test_runs_are_kept_apart_and_give_back_what_was_there() -> None:
    runs = Runs()
    for first, end in ((0, 5), (10, 15), (20, 25), (5, 6), (24, 30)):
        runs.add(first, end)
    assert list(runs) == [(0, 6), (10, 15), (20, 30)]
    assert runs.remove(3, 22) == [(3, 6), (10, 15), (20, 22)]
    assert list(runs) == [(0, 3), (22, 30)]
    assert runs.remove(3, 22) == []
    assert runs.remove(25, 23) == []
    assert list(runs) == [(0, 3), (22, 30)]
    assert runs.count() == 11
    assert runs.first == 0


def test_a_subscription_with_its_consumer_is_three_objects_to_the_garbage_collector() -> None:
    bench, link, many = Bench(), Link(), 1000
    bench.subscribe("before", link=link)
    bench.write()
    bench.pump()
    gc.collect()
    before = len(gc.get_objects())
    for number in range(many):
        consumer = bench.subscribe(str(number), link=link)
        bench.dispatcher.ack(consumer, Offset(0), Offset(BATCH))
    bench.write()
    bench.pump()
    gc.collect()
    assert len(gc.get_objects()) - before < 3 * many + 100  # itself, its cursor, its consumer


def test_what_was_given_and_trimmed_is_acknowledged() -> None:
    bench = Bench()
    bench.keys = [b"k"] * BATCH
    one = bench.subscribe("k", KEY_SHARED)
    bench.write()
    bench.pump()
    bench.dispatcher.trimmed(Offset(BATCH))
    bench.dispatcher.ack(one, Offset(0), Offset(BATCH))
    for _ in range(5):
        bench.subscribe("k", KEY_SHARED)  # one of them owns the slot of the key now
    bench.write()
    assert [offset for given in bench.pump().values() for offset in given] == list(range(BATCH, 2 * BATCH))
