"""The deliveries of a partition's records; numbers cite the invariants of `dispatcher`, `cohort` and `key_slots`."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from struct import unpack

import pytest

from gnomon.broker.subscriptions import dispatcher, key_slots, stations, subscription
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.dispatcher import PLACED_UNITS, ConsumerRefused, Dispatcher
from gnomon.broker.subscriptions.key_slots import slot_of
from gnomon.broker.subscriptions.subscription import AttachedConsumer, SubscriptionType
from gnomon.log.entry import Offset


class OpenChannel:
    """A channel that takes deliveries until a test blocks it."""

    ready = True


BATCH = 10
EXCLUSIVE, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER
SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED


class Bench:
    """A dispatcher of a log whose batches have ten records each."""

    def __init__(self, end: int = 0) -> None:
        self.dispatcher = Dispatcher(Offset(end))
        self.frames: list[tuple[OpenChannel, int, int, list[tuple[int, ...]]]] = []
        """Channel, offset of the batch, and the numbers and slots of its parcels."""
        self.reads = 0
        self.keys: Sequence[bytes | None] = [b"%d" % each for each in range(BATCH)]
        self._numbers = 0

    def subscribe(
        self,
        name: str,
        kind: SubscriptionType = EXCLUSIVE,
        *,
        channel: OpenChannel | None = None,
        permits: int = 1000,
        at: int = 0,
        client: str | None = None,
    ) -> AttachedConsumer:
        known = self.dispatcher.subscriptions
        subscription = known.get(name) or self.dispatcher.add(name, Cursor(Offset(at)))
        self._numbers += 1
        client = client or str(self._numbers)
        self.dispatcher.check(subscription, kind, client)
        return self.dispatcher.attach(subscription, kind, channel or OpenChannel(), self._numbers, client, permits)

    def write(self, batches: int = 1) -> None:
        self.dispatcher.advanced(Offset(self.dispatcher.end + batches * BATCH))

    def look(self, first: int, count: int) -> list[int]:
        """The slots of records by their keys."""
        return [slot_of(self.keys[offset % BATCH], offset) for offset in range(first, first + count)]

    def pump(self) -> dict[int, list[int]]:
        """Gives all records that can be given; returns their offsets by the number of the consumer."""
        given: dict[int, list[int]] = {}
        while (wanted := self.dispatcher.wanted()) is not None:
            self.reads += 1
            base = wanted // BATCH * BATCH
            parcels = self.dispatcher.give(wanted, Offset(base), Offset(base + BATCH), self.look)
            for channel, parts in parcels.items():
                named = [unpack(f"<{len(numbers) // 4}I", numbers) for numbers, _ in parts]
                self.frames.append((channel, base, sum(map(len, named)), named))
                for numbers, (_, slots) in zip(named, parts, strict=True):
                    places = range(BATCH) if slots is None else unpack(f"<{len(slots) // 4}I", slots)
                    for number in numbers:
                        given.setdefault(number, []).extend(base + place for place in places)
        return given


def test_a_batch_for_a_thousand_consumers_of_a_channel_is_read_once_and_is_one_part() -> None:  # 4, 5
    bench, channel = Bench(), OpenChannel()
    for number in range(1000):
        bench.subscribe(f"reader-{number}", channel=channel)
    bench.write()
    assert len(bench.pump()) == 1000
    assert bench.reads == 1
    assert [(where, base, count, len(parts)) for where, base, count, parts in bench.frames] == [(channel, 0, 1000, 1)]


def test_consumers_that_catch_up_join_those_that_wait_at_the_end() -> None:  # 5
    bench, channel = Bench(30), OpenChannel()
    bench.subscribe("at the end", channel=channel, at=30)
    bench.subscribe("behind", channel=channel, at=0)
    bench.pump()
    bench.frames.clear()
    bench.write()
    bench.pump()
    assert [len(parts) for _, _, _, parts in bench.frames] == [1]


def test_a_reader_that_begins_within_a_batch_gets_the_rest_of_it() -> None:
    bench = Bench(10)
    consumer = bench.subscribe("late", at=7)
    assert bench.pump() == {consumer.number: [7, 8, 9]}


def test_nothing_is_given_at_or_above_the_end() -> None:  # 1
    bench = Bench()
    bench.subscribe("early")
    assert bench.pump() == {}


def test_a_consumer_without_permits_is_given_nothing_and_the_others_continue() -> None:  # cohort 2, 3
    bench, channel = Bench(), OpenChannel()
    poor = bench.subscribe("poor", channel=channel, permits=5)
    rich = bench.subscribe("rich", channel=channel)
    bench.write(3)
    given = bench.pump()
    assert given[poor.number] == list(range(10)), "a batch is given whole"
    assert given[rich.number] == list(range(30))
    bench.dispatcher.flow(poor, 5)
    assert bench.pump() == {}, "it owes five"
    bench.dispatcher.flow(poor, 1)
    assert bench.pump() == {poor.number: list(range(10, 20))}


def test_a_blocked_channel_delays_only_its_own_consumers() -> None:
    bench, slow = Bench(), OpenChannel()
    one, two = bench.subscribe("one", channel=slow), bench.subscribe("two")
    slow.ready = False
    bench.write()
    assert list(bench.pump()) == [two.number]
    slow.ready = True
    bench.dispatcher.channel_ready(slow)
    assert list(bench.pump()) == [one.number]


def test_a_second_exclusive_consumer_is_refused_unless_it_replaces_one_of_the_same_client() -> None:  # 3
    bench = Bench(10)
    first = bench.subscribe("one", client="me")
    with pytest.raises(ConsumerRefused, match="has a consumer"):
        bench.subscribe("one", client="you")
    bench.pump()
    again = bench.subscribe("one", client="me")
    assert bench.pump() == {again.number: list(range(10))}
    assert first not in bench.dispatcher.subscriptions["one"].consumers


def test_a_call_of_a_replaced_consumer_changes_nothing() -> None:
    bench = Bench(10)
    before = bench.subscribe("one", client="me")
    now = bench.subscribe("one", client="me")
    bench.dispatcher.detach(now)
    bench.dispatcher.nack(before, Offset(0), Offset(5), due=0.0, now=0.0)
    bench.dispatcher.flow(before, 5)
    assert bench.pump() == {}


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_replaced_consumer_acknowledges_nothing(kind: SubscriptionType) -> None:  # 6
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


def test_records_acknowledged_ahead_are_left_out() -> None:  # 1
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


def test_shared_consumers_get_batches_in_turn_and_take_over_the_records_of_a_detached_consumer() -> None:  # 2
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
def test_a_returned_record_is_given_again_after_its_delay_unless_it_is_acknowledged(kind: SubscriptionType) -> None:
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


def test_delayed_records_are_void_when_reading_begins_again() -> None:
    bench = Bench(10)
    consumer = bench.subscribe("n")
    bench.pump()
    bench.dispatcher.nack(consumer, Offset(4), Offset(5), due=2.0, now=0.0)
    bench.dispatcher.detach(consumer)
    again = bench.subscribe("n")
    assert bench.pump() == {again.number: list(range(10))}
    bench.dispatcher.tick(3.0)
    assert bench.pump() == {}


def test_a_key_stays_with_its_consumer_until_its_given_records_are_acknowledged() -> None:  # key_slots 2
    bench = Bench(10)
    bench.keys = [b"k"] * BATCH
    one = bench.subscribe("k", KEY_SHARED)
    bench.pump()
    others = [bench.subscribe("k", KEY_SHARED) for _ in range(5)]
    slots = bench.dispatcher.subscriptions["k"].keys
    assert slots is not None
    slots.share_out(others)  # the key has another owner now, not the first consumer
    bench.write()
    assert bench.pump() == {}
    bench.dispatcher.ack(one, Offset(0), Offset(9))
    assert bench.pump() == {}
    bench.dispatcher.ack(one, Offset(9), Offset(10))
    (given,) = bench.pump().values()
    assert given == list(range(10, 20))


def test_a_key_stays_with_its_consumer_when_its_given_records_were_removed() -> None:  # key_slots 2
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


def test_a_key_is_free_again_after_any_consumer_acknowledges_its_records() -> None:  # key_slots 2
    """A client reconnects and acknowledges records that another consumer has received meanwhile."""
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


def test_a_consumer_without_permits_delays_only_its_own_keys() -> None:  # key_slots 3
    bench = Bench()
    poor, rich = bench.subscribe("k", KEY_SHARED, permits=1), bench.subscribe("k", KEY_SHARED)
    bench.write(4)
    given = bench.pump()
    assert sorted(given[poor.number] + given[rich.number])[:BATCH] == list(range(BATCH)), "a batch is given whole"
    assert len(given[poor.number]) < BATCH
    theirs = [offset for offset in range(40) if offset % BATCH in {each % BATCH for each in given[rich.number]}]
    assert given[rich.number] == theirs
    bench.dispatcher.flow(poor, 1000)
    more = bench.pump()
    assert sorted(given[poor.number] + more[poor.number] + given[rich.number]) == list(range(40))
    assert more[poor.number] == sorted(more[poor.number])


def test_reading_stops_for_a_consumer_that_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    monkeypatch.setattr(key_slots, "KNOWN_MAX", 3 * BATCH)
    bench = Bench()
    consumer = bench.subscribe("k", KEY_SHARED, permits=1 << 40)
    bench.write(10)
    assert bench.pump()[consumer.number] == list(range(3 * BATCH))
    bench.dispatcher.ack(consumer, Offset(0), Offset(1))
    assert bench.pump()[consumer.number] == list(range(3 * BATCH, 4 * BATCH))


def test_the_number_of_consumers_of_a_subscription_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "CONSUMERS_MAX", 3)
    bench = Bench()
    for client in "abc":
        bench.subscribe("s", SHARED, client=client)
    with pytest.raises(ConsumerRefused, match="has 3 consumers of this partition"):
        bench.subscribe("s", SHARED, client="d")
    bench.subscribe("s", SHARED, client="c")


def test_a_subscription_with_its_consumer_is_three_objects_to_the_garbage_collector() -> None:
    bench, channel, many = Bench(), OpenChannel(), 1000
    bench.subscribe("before", channel=channel)
    bench.write()
    bench.pump()
    gc.collect()
    before = len(gc.get_objects())
    for number in range(many):
        consumer = bench.subscribe(str(number), channel=channel)
        bench.dispatcher.ack(consumer, Offset(0), Offset(BATCH))
    bench.write()
    bench.pump()
    gc.collect()
    assert len(gc.get_objects()) - before < 3 * many + 100  # itself, its cursor, its consumer


def test_a_long_batch_is_given_in_stretches_and_each_key_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 7
    monkeypatch.setattr(dispatcher, "LOOKED_AT_ONCE", 2)
    monkeypatch.setattr(key_slots, "STRETCH_RECORDS", 4)
    bench, channel, looks = Bench(), OpenChannel(), list[int]()
    bench.keys = [b"a", b"b"] * (BATCH // 2)
    for _ in range(2):
        bench.subscribe("k", KEY_SHARED, channel=channel)
    look = bench.look
    monkeypatch.setattr(bench, "look", lambda first, count: (looks.append(count), look(first, count))[1])
    bench.write()
    assert sorted(bench.pump().values()) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    assert looks == [2] * 5
    assert [count for _, _, count, _ in bench.frames] == [2, 2, 2], "the batch is sent once for each stretch"


def test_one_act_sends_a_large_batch_over_a_bounded_number_of_channels(monkeypatch: pytest.MonkeyPatch) -> None:  # 7
    monkeypatch.setattr(dispatcher, "SENT_UNITS_MAX", 250)
    bench = Bench()
    for _ in range(5):
        bench.subscribe("k", KEY_SHARED)
    bench.write()
    channels, offsets = [], list[int]()
    while (wanted := bench.dispatcher.wanted()) is not None:
        parcels = bench.dispatcher.give(wanted, Offset(0), Offset(BATCH), bench.look, 100)
        channels.append(len(parcels))
        offsets += [place for parts in parcels.values() for _, slots in parts for place in places_of(slots)]
    assert max(channels) == 2
    assert sorted(offsets) == list(range(BATCH))


def test_a_batch_is_given_to_as_many_waiting_subscriptions_as_the_allowance_permits() -> None:  # 7
    bench = Bench()
    for number in range(5):
        bench.subscribe(f"s{number}", SHARED)
    bench.write()
    served = []
    while (wanted := bench.dispatcher.wanted()) is not None:
        bench.dispatcher.allowance.left = 250
        served.append(len(bench.dispatcher.give(wanted, Offset(0), Offset(BATCH), bench.look, 100)))
    assert served == [3, 2]


def test_as_many_subscriptions_find_out_where_they_wait_in_a_turn_as_the_allowance_permits() -> None:  # 7
    bench = Bench()
    for number in range(5):
        bench.subscribe(f"s{number}", KEY_SHARED)
    bench.write()
    turns = 0
    while True:
        bench.dispatcher.allowance.left = 2 * PLACED_UNITS
        wanted = bench.dispatcher.wanted()
        turns += 1
        if bench.dispatcher.allowance.left > 0:
            break
        assert bench.dispatcher.allowance.left == 0
    assert (turns, wanted) == (3, 0)


def test_a_station_of_many_readers_is_examined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:  # stations 4
    monkeypatch.setattr(stations, "READERS_AT_ONCE", 2)
    bench = Bench()
    blocked, free = OpenChannel(), OpenChannel()
    for number in range(9):
        bench.subscribe(f"s{number}", SHARED, channel=free if number % 3 else blocked)
    blocked.ready = False
    bench.write()
    assert sorted(bench.pump()) == [2, 3, 5, 6, 8, 9]
    blocked.ready = True
    bench.dispatcher.channel_ready(blocked)
    assert sorted(bench.pump()) == [1, 4, 7]


def places_of(slots: bytes | None) -> Sequence[int]:
    return range(BATCH) if slots is None else unpack(f"<{len(slots) // 4}I", slots)


def with_every_second_record_left_behind() -> tuple[Bench, AttachedConsumer]:
    """A shared subscription and its consumer; an earlier consumer has acknowledged the odd records and is detached."""
    bench = Bench()
    one = bench.subscribe("s", SHARED)
    bench.write()
    bench.pump()
    for offset in range(1, BATCH, 2):
        bench.dispatcher.ack(one, Offset(offset), Offset(offset + 1))
    other = bench.subscribe("s", SHARED)
    bench.dispatcher.detach(one)
    return bench, other


def test_records_of_a_batch_are_given_again_in_a_bounded_number_of_runs_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 7
    monkeypatch.setattr(subscription, "RUNS_MAX", 2)
    bench, other = with_every_second_record_left_behind()
    bench.frames.clear()
    assert bench.pump() == {other.number: [0, 2, 4, 6, 8]}
    assert len(bench.frames) == 3


def test_many_runs_of_a_detached_consumer_are_given_again_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:  # 7
    monkeypatch.setattr(dispatcher, "RUNS_MAX", 2)
    bench, other = with_every_second_record_left_behind()
    assert bench.pump() == {other.number: [0, 2]}
    bench.dispatcher.allowance.left = 1
    bench.dispatcher.tick(0.0)
    assert bench.pump() == {other.number: [4, 6]}, "the allowance was spent"
    bench.dispatcher.allowance.left = 1
    bench.dispatcher.tick(0.0)
    assert bench.pump() == {other.number: [8]}


def test_a_long_run_is_acknowledged_in_parts_of_a_bounded_number_of_known_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 7
    monkeypatch.setattr(dispatcher, "RUNS_MAX", 4)
    bench = Bench()
    one = bench.subscribe("k", KEY_SHARED)
    bench.write()
    bench.pump()
    assert bench.dispatcher.pieces_of(one, 0, 1 << 60) == [(0, 4), (4, 8), (8, 1 << 60)]
    exclusive = bench.subscribe("e")
    assert bench.dispatcher.pieces_of(exclusive, 0, 1 << 60) == [(0, 1 << 60)]


def test_given_records_that_were_removed_can_be_acknowledged() -> None:
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


def test_names_of_subscriptions_are_given_in_order_from_any_name_on() -> None:
    dispatcher: Dispatcher[OpenChannel] = Dispatcher(Offset(0))
    for name in ("delta", "alpha", "charlie", "bravo"):
        dispatcher.add(name, Cursor(Offset(0)))
    assert dispatcher.names_after("", 2) == ["alpha", "bravo"]
    assert dispatcher.names_after("bravo", 10) == ["charlie", "delta"]
    dispatcher.remove("charlie")
    assert dispatcher.names_after("b", 10) == ["bravo", "delta"]
    assert dispatcher.names_after("delta", 1) == []
