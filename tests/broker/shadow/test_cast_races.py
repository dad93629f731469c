"""Concurrent changes of shadows and sources, and wrong records of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio
from cluster_calls import behind, on_one_partition
from topic_calls import batch, cast, delete, image, shadows, topic_metadata

from gnomon.broker.broker import Broker
from gnomon.broker.errors import KafkaError
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.log.subscription_keys import hold_key, reader_key, subscriber_of_key, subscriptions_prefix
from gnomon.log.topic import SourceRef, Topic, shadows_key, topic_key
from gnomon.metadata.client import Compare, Delete, Metadata, Operation, Put, TxnOutcome
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.placement import DescribeTopicPartitionsRequest, TopicRequest


class Between:
    """Metadata with one concurrent change right before a transaction is evaluated."""

    def __init__(self, inner: Metadata, *operations: Operation) -> None:
        self._inner = inner
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        operations, self._operations = self._operations, ()
        if operations:
            await self._inner.txn([], operations)
        return await self._inner.txn(compare, then, otherwise)


class Overtaken:
    """Metadata with a concurrent act right before a transaction is evaluated: the one with the number `before`."""

    def __init__(self, node: Broker, act: Callable[[], Awaitable[object]], before: int = 1) -> None:
        self._node, self._inner, self._act, self._before = node, node.storage.metadata, act, before
        self.txns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        self.txns += 1
        if self.txns == self._before:
            self._node.storage.metadata = self._inner
            await self._act()
            self._node.storage.metadata = self
        return await self._inner.txn(compare, then, otherwise)


def test_a_shadow_is_not_created_when_its_source_is_deleted_meanwhile() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        node = broker.serving.broker
        new = node.topic_admin.check_new("copy", -1, {SHADOW_SOURCE: "orders"})
        node.storage.metadata = Between(node.storage.metadata, Delete(topic_key("orders")))
        with pytest.raises(KafkaError, match="was deleted meanwhile"):
            await node.topic_admin.create(new)
        assert await node.storage.metadata.get(topic_key("copy")) is None

    simulate_broker(scenario)


def test_a_source_is_not_deleted_when_a_shadow_is_created_meanwhile() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders")
        node = broker.serving.broker
        rival = Topic("copy", UUID(int=7), 1, {}, source=SourceRef("orders", source_id, 1))
        cast_by_another = (Put(topic_key("copy"), rival.encode()), Put(shadows_key(source_id), b""))
        node.storage.metadata = Between(node.storage.metadata, *cast_by_another)
        with pytest.raises(KafkaError, match="delete copy first"):
            await node.topic_admin.delete(image(broker, "orders"))
        assert await node.storage.metadata.get(topic_key("orders")) is not None

    simulate_broker(scenario)


def test_a_subscription_created_while_its_topic_grows_is_in_the_new_partitions_too() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders")
        node = broker.serving.broker
        record = Put(f"{subscriptions_prefix(source_id, 0)}late", SubscriberRecord("late", Position()).encode())
        left = Put(f"{subscriptions_prefix(source_id, 1)}left", b"")  # of a growth that failed
        reader = Put(reader_key(source_id, source_id), b"orders")
        node.storage.metadata = Between(node.storage.metadata, record, Put(hold_key(source_id), b""), reader, left)
        await node.topic_admin.grow("orders", 2)
        found = await node.storage.metadata.range(subscriptions_prefix(source_id, 1))
        assert [subscriber_of_key(item.key) for item in found.items] == ["late"]

    simulate_broker(scenario)


def test_a_shadow_created_while_its_source_grows_has_the_new_partitions() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        node = broker.serving.broker
        grown = image(broker, "orders").with_partitions(3)
        new = node.topic_admin.check_new("copy", 1, {SHADOW_SOURCE: "orders"})
        node.storage.metadata = Between(node.storage.metadata, Put(topic_key("orders"), grown.encode()))
        assert (await node.topic_admin.create(new)).partitions == 3
        other = Topic("other", UUID(int=8), 3, {}, source=SourceRef("orders", grown.id, 2))
        node.storage.metadata = Between(
            node.storage.metadata, Put(topic_key("other"), other.encode()), Put(shadows_key(grown.id), b"")
        )
        await node.topic_admin.grow("orders", 5)
        assert [image(broker, name).partitions for name in ("orders", "copy", "other")] == [5, 5, 5]

    simulate_broker(scenario)


@pytest.mark.parametrize("before", [1, 2])
def test_a_growth_is_not_repeated_because_shadows_are_created_meanwhile(before: int) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        node = broker.serving.broker

        async def cast_one() -> None:
            await node.topic_admin.create(node.topic_admin.check_new("copy", -1, {SHADOW_SOURCE: "orders"}))

        node.storage.metadata = overtaken = Overtaken(node, cast_one, before)
        await node.topic_admin.grow("orders", 2)
        assert overtaken.txns == 2, "its beginning, and the growth"
        assert image(broker, "copy").partitions == 2

    simulate_broker(scenario)


@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_a_shadow_that_is_deleted_while_its_source_grows_leaves_no_subscription(before: int) -> None:  # growth 2
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders")
        await cast(client, "copy", "orders")
        node, copy = broker.serving.broker, image(broker, "copy")
        record = SubscriberRecord("screens", Position())
        await put(
            broker,
            Put(f"{subscriptions_prefix(copy.id, 0)}screens", record.encode()),
            Put(reader_key(source_id, copy.id), b"copy"),
            Put(topic_key("copy"), copy.encode()),  # an event that `put` can wait for
        )
        node.storage.metadata = overtaken = Overtaken(node, lambda: node.topic_admin.delete(copy), before)
        await node.topic_admin.grow("orders", 3)
        assert overtaken.txns >= before
        for prefix in (subscriptions_prefix(copy.id), f"readers/{source_id.hex}/"):
            assert (await node.storage.metadata.range(prefix)).items == ()

    simulate_broker(scenario)


def test_a_shadow_is_not_created_when_its_source_is_deleted_and_created_again_meanwhile() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        node = broker.serving.broker
        new = node.topic_admin.check_new("copy", -1, {SHADOW_SOURCE: "orders"})

        async def make_again() -> None:
            await node.topic_admin.delete(image(broker, "orders"))
            await node.topic_admin.create(node.topic_admin.check_new("orders", 1, {}))

        node.storage.metadata = Overtaken(node, make_again)
        with pytest.raises(KafkaError, match="was deleted meanwhile"):
            await node.topic_admin.create(new)
        assert shadows(broker, "orders") == []
        assert node.topics.image.get("copy") is None

    simulate_broker(scenario)


def test_a_broker_that_lags_learns_of_all_shadows_before_it_creates_another() -> None:  # cast 1
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        first, late = (cluster.serving[number].broker for number in (1, 2))
        await late.topics.reached(first.topics.find("orders").create_revision)
        places = list[int]()

        async def cast_late() -> None:
            topic = await late.topic_admin.create(late.topic_admin.check_new("two", -1, {SHADOW_SOURCE: "orders"}))
            places.append(topic.place)

        async with trio.open_nursery() as nursery:
            with behind(late.topics.follower):
                await first.topic_admin.create(first.topic_admin.check_new("one", -1, {SHADOW_SOURCE: "orders"}))
                nursery.start_soon(cast_late)
                await client.world.clock.sleep(0.5)
                assert not places
        assert places == [2]

    on_one_partition(1, 2, work)


@pytest.mark.parametrize("lives", [True, False])
def test_a_broker_that_lags_learns_whether_a_source_has_shadows_before_it_deletes_it(lives: bool) -> None:  # cast 3
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        first, late = (cluster.serving[number].broker for number in (1, 2))
        await late.topics.reached(first.topics.find("orders").create_revision)
        new = first.topic_admin.check_new("copy", -1, {SHADOW_SOURCE: "orders"})
        outcomes = list[str]()

        async def delete_late() -> None:
            try:
                await late.topic_admin.delete(late.topics.find("orders"))
            except KafkaError as error:
                outcomes.append(error.text)
            else:
                outcomes.append("deleted")

        if not lives:
            await late.topics.reached((await first.topic_admin.create(new)).create_revision)
        async with trio.open_nursery() as nursery:
            with behind(late.topics.follower):
                if lives:
                    await first.topic_admin.create(new)
                else:
                    await first.topic_admin.delete(first.topics.find("copy"))
                nursery.start_soon(delete_late)
                await client.world.clock.sleep(0.5)
                assert not outcomes
        refused = "Topic 'orders' has shadows that show its records: delete copy first."
        assert outcomes == [refused if lives else "deleted"]

    on_one_partition(1, 2, work)


def test_two_shadows_created_at_once_get_two_places() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        admin = broker.serving.broker.topic_admin
        new = [admin.check_new(f"copy-{number}", -1, {SHADOW_SOURCE: "orders"}) for number in range(5)]
        async with trio.open_nursery() as nursery:
            for topic in new:
                nursery.start_soon(admin.create, topic)
        assert sorted(image(broker, topic.name).place for topic in new) == [1, 2, 3, 4, 5]
        assert sorted(shadows(broker, "orders")) == sorted(topic.name for topic in new)

    simulate_broker(scenario)


async def put(broker: EmbeddedBroker, *operations: Operation) -> None:
    node = broker.serving.broker
    await node.topics.reached((await node.storage.metadata.txn([], operations)).revision)


def test_the_deletion_of_a_shadow_deletes_no_ledger_even_if_its_record_is_wrong() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders")
        await client.produce("orders", batch("a"))
        await cast(client, "copy", "orders")
        copy = image(broker, "copy")
        damaged = [replace(copy, id=source_id), replace(copy, id=source_id, source=None), replace(copy, source=None)]
        for record in damaged:
            await put(broker, Put(topic_key("copy"), record.encode()))
            code, text = await delete(client, "copy")
            assert code == 0, text
            found = await broker.serving.broker.storage.metadata.range(f"ledgers/topics/{source_id.hex}/")
            assert len(found.items) == 1
            await put(broker, Put(topic_key("orders"), image(broker, "orders").encode()))
            await put(broker, Put(topic_key("copy"), copy.encode()))
        assert await delete(client, "copy") == (0, None)
        assert (await client.fetch("orders", 0)).high_watermark == 1

    simulate_broker(scenario)


def test_a_shadow_without_its_source_answers_with_the_reason_and_can_be_deleted() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch("a"))
        await cast(client, "copy", "orders")
        assert (await client.fetch("copy", 0)).high_watermark == 1
        poll = client.connection.send(client.fetch_request("copy", 1, max_wait_ms=60_000), 11)
        await put(broker, Delete(topic_key("orders")))
        ended = (await client.connection.wait(poll)).responses[0].partitions[0]
        assert ended.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.fetch("copy", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await topic_metadata(client, "copy")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert [fields["topic"] for event, fields in broker.events if event == "shadow_ended"] == ["copy"]
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="copy")], response_partition_limit=10)
        assert (await client.ask(request, 0)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        await client.create_topic("orders")
        await client.produce("orders", batch("b"))
        assert (await topic_metadata(client, "copy")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (await client.fetch("copy", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete(client, "copy") == (0, None)
        assert (await client.fetch("orders", 0)).high_watermark == 1

    simulate_broker(scenario)
