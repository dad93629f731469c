"""The deliveries of a partition's records; numbers cite the invariants of `dispatcher` and `cohort`."""

from __future__ import annotations

import gc

import pytest
from dispatcher_bench import BATCH, FAILOVER, SHARED, Bench, OpenChannel

from gnomon.broker.subscriptions import dispatcher
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.dispatcher import ConsumerRefused, Dispatcher
from gnomon.broker.subscriptions.subscription import SubscriptionType
from gnomon.log.entry import Offset


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


def test_names_of_subscriptions_are_given_in_order_from_any_name_on() -> None:
    dispatcher: Dispatcher[OpenChannel] = Dispatcher(Offset(0))
    for name in ("delta", "alpha", "charlie", "bravo"):
        dispatcher.add(name, Cursor(Offset(0)))
    assert dispatcher.names_after("", 2) == ["alpha", "bravo"]
    assert dispatcher.names_after("bravo", 10) == ["charlie", "delta"]
    dispatcher.remove("charlie")
    assert dispatcher.names_after("b", 10) == ["bravo", "delta"]
    assert dispatcher.names_after("delta", 1) == []
