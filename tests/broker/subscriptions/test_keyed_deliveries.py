"""The deliveries of a subscription whose keys belong to consumers; numbers cite the invariants of `key_slots`."""

from __future__ import annotations

import pytest
from dispatcher_bench import BATCH, KEY_SHARED, Bench

from gnomon.broker.subscriptions import key_slots
from gnomon.log.entry import Offset


def test_a_key_stays_with_its_consumer_until_its_given_records_are_acknowledged() -> None:  # 2
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


def test_a_key_stays_with_its_consumer_when_its_given_records_were_removed() -> None:  # 2
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


def test_a_key_is_free_again_after_any_consumer_acknowledges_its_records() -> None:  # 2
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


def test_a_consumer_without_permits_delays_only_its_own_keys() -> None:  # 3
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


def test_reading_stops_for_a_consumer_that_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    monkeypatch.setattr(key_slots, "KNOWN_MAX", 3 * BATCH)
    bench = Bench()
    consumer = bench.subscribe("k", KEY_SHARED, permits=1 << 40)
    bench.write(10)
    assert bench.pump()[consumer.number] == list(range(3 * BATCH))
    bench.dispatcher.ack(consumer, Offset(0), Offset(1))
    assert bench.pump()[consumer.number] == list(range(3 * BATCH, 4 * BATCH))


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
