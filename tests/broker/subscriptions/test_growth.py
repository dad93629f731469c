"""The subscriptions of a growing topic; numbers cite the invariants of `growth`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from store_house import TOPIC_ID, StoreHouse

from gnomon.broker.subscriptions.positions.growth import begin_in_new_partitions
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.log.subscription_keys import reader_key, subscriptions_prefix
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Compare, Put

GROWN = 3


async def topic_with_a_subscription(house: StoreHouse) -> Topic:
    topic = Topic("orders", TOPIC_ID, 2, {})
    reader = SubscriberRecord("billing", Position())
    puts = [Put(f"{subscriptions_prefix(TOPIC_ID, index)}billing", reader.encode()) for index in range(2)]
    readers = Put(reader_key(TOPIC_ID, TOPIC_ID), topic.name.encode())
    await house.metadata.txn((), (Put(topic_key("orders"), topic.encode()), readers, *puts))
    stored = await house.metadata.get(topic_key("orders"))
    assert stored is not None
    return Topic.decode(stored)


async def grown(house: StoreHouse, topic: Topic, known: Compare, told: Put) -> bool:
    same = Compare.version(topic_key("orders"), topic.version)
    larger = Put(topic_key("orders"), replace(topic, partitions=GROWN).encode())
    return (await house.metadata.txn((same, known), (larger, told))).succeeded


async def in_the_new_partition(house: StoreHouse) -> list[str]:
    prefix = subscriptions_prefix(TOPIC_ID, 2)
    return [item.key.removeprefix(prefix) for item in (await house.metadata.range(prefix)).items]


def test_a_growth_fails_that_another_one_has_overtaken(on_one_disk: Callable[..., None]) -> None:  # 3
    """The second one deletes what the first one has created; a client that got no answer has asked another broker."""

    async def act(house: StoreHouse) -> None:
        topic = await topic_with_a_subscription(house)
        first = await begin_in_new_partitions(house.metadata, topic, GROWN)
        second = await begin_in_new_partitions(house.metadata, topic, GROWN)
        assert not await grown(house, topic, *first)
        assert await grown(house, topic, *second)
        assert await in_the_new_partition(house) == ["billing"]

    on_one_disk(act)


def test_a_growth_begins_nothing_once_the_topic_has_grown(on_one_disk: Callable[..., None]) -> None:
    async def act(house: StoreHouse) -> None:
        topic = await topic_with_a_subscription(house)
        assert await grown(house, topic, *await begin_in_new_partitions(house.metadata, topic, GROWN))
        late = await begin_in_new_partitions(house.metadata, topic, GROWN)
        assert not await grown(house, topic, *late)
        assert await in_the_new_partition(house) == ["billing"]

    on_one_disk(act)
