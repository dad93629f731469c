"""The leaders of partitions (numbers: invariants of `leadership`)."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import msgpack

from gnomon.broker.placement.leadership import NOBODY, RANKS_PER_HASH, Leadership, LiveBroker
from gnomon.runtime.settings.endpoint import Endpoint

TOPIC = UUID(int=7)


def brokers(*ids: int) -> list[LiveBroker]:
    return [LiveBroker(number, f"broker-{number}", 9092) for number in ids]


def leaders(leadership: Leadership, partitions: int, place: int = 0) -> list[int]:
    """The leaders of the first partitions of TOPIC."""
    blocks = range(-(-partitions // RANKS_PER_HASH))
    return [leader for block in blocks for leader in leadership.leaders(TOPIC, block, place)][:partitions]


def test_every_broker_computes_the_same_leaders_from_any_order_of_registrations() -> None:  # invariant 1
    one, other = Leadership(brokers(1, 2, 3)), Leadership(brokers(3, 1, 2))
    assert leaders(one, 1000) == leaders(other, 1000)


def test_the_leaders_of_known_topics_never_change() -> None:  # invariant 1
    """Other releases in the same cluster compute them too."""
    assert leaders(Leadership(brokers(1, 2, 3)), 20) == [
        1,
        2,
        2,
        3,
        1,
        3,
        2,
        1,
        1,
        1,
        1,
        1,
        2,
        1,
        2,
        1,
        3,
        3,
        3,
        2,
    ]


def test_partitions_are_spread_evenly() -> None:  # invariant 1
    counts = Counter(leaders(Leadership(brokers(1, 2, 3)), 10_000))
    assert all(3000 < counts[number] < 3700 for number in (1, 2, 3))


def test_the_shadows_of_a_partition_have_distinct_leaders_if_there_are_enough_brokers() -> None:  # invariant 3
    leadership = Leadership(brokers(1, 2, 3))
    for ranking in zip(*(leaders(leadership, 1000, place) for place in range(4)), strict=True):
        assert set(ranking[:3]) == {1, 2, 3}
        assert ranking[3] == ranking[0]
    counts = Counter(leaders(leadership, 10_000, 2))
    assert all(3000 < counts[number] < 3700 for number in (1, 2, 3))


def test_a_leaving_broker_moves_no_shadow_at_a_place_before_its_own() -> None:  # invariant 3
    four, three = Leadership(brokers(1, 2, 3, 4)), Leadership(brokers(1, 2, 3))
    rankings = [
        zip(*(leaders(leadership, 1000, place) for place in range(places)), strict=True)
        for leadership, places in ((four, 4), (three, 3))
    ]
    for before, after in zip(*rankings, strict=True):
        assert list(after) == [number for number in before if number != 4]


def test_a_joining_or_leaving_broker_moves_only_the_partitions_that_it_gets_or_had() -> None:  # invariant 1
    three, four = (leaders(Leadership(brokers(*ids)), 1000) for ids in ((1, 2, 3), (1, 2, 3, 4)))
    moved = [(before, after) for before, after in zip(three, four, strict=True) if before != after]
    assert {after for _, after in moved} == {4}
    assert 180 < len(moved) < 320


def test_a_draining_broker_leads_nothing_and_is_not_shown_to_clients() -> None:  # invariant 2
    leadership = Leadership([*brokers(2, 3), LiveBroker(1, "broker-1", 9092, draining=True)])
    assert set(leaders(leadership, 100)) == {2, 3}
    assert leaders(leadership, 100) == leaders(Leadership(brokers(2, 3)), 100)
    assert [broker.id for broker in leadership.shown_to_clients()] == [2, 3]
    assert leadership.controller == 2


def test_no_broker_leads_after_the_last_one_drains() -> None:  # invariant 2
    leadership = Leadership([LiveBroker(1, "broker-1", 9092, draining=True)])
    assert leaders(leadership, 3) == [NOBODY] * 3
    assert [broker.id for broker in leadership.shown_to_clients()] == [1]
    assert Leadership([]).controller == NOBODY


def test_a_registration_reads_as_it_was_written() -> None:
    broker = LiveBroker(5, "host", 9092, "rack-1", draining=True, lease_seconds=6.0)
    assert LiveBroker.decode(5, broker.encode()) == broker


def test_a_registration_has_the_address_of_each_listener() -> None:
    named = (Endpoint("INSIDE", "10.0.0.5", 9092), Endpoint("OUTSIDE", "public", 32000))
    broker = LiveBroker(5, "10.0.0.5", 9092, native_port=6650, listeners=named, native_host="public")
    assert LiveBroker.decode(5, broker.encode()) == broker
    assert (broker.endpoint("OUTSIDE"), broker.endpoint("PLAINTEXT")) == (("public", 32000), None)
    assert broker.native == ("public", 6650)


def test_a_registration_without_names_is_that_of_one_listener_named_plaintext() -> None:
    broker = LiveBroker.decode(5, msgpack.packb(["host", 9092, "rack", False, 6.0, 6650]))
    assert (broker.endpoint("PLAINTEXT"), broker.endpoint("INSIDE")) == (("host", 9092), None)
    assert broker.native == ("host", 6650)
    assert len(msgpack.unpackb(broker.encode())) == 6  # earlier versions read no more
