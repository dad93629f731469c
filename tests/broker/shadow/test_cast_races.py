"""Shadows and sources that change at the same time, and records of them that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio
from topic_calls import batch, cast, delete, image, told

from gnomon.broker.errors import KafkaError
from gnomon.broker.shadow.cast import SHADOW_SOURCE
from gnomon.broker.subscriptions.record import SubscriberRecord
from gnomon.broker.subscriptions.store import Position, hold_key, subscriber_of_key, subscriptions_prefix
from gnomon.broker.topics import SourceRef, Topic, topic_key
from gnomon.metadata.client import Compare, Delete, Metadata, Operation, Put, TxnResult
from gnomon.testing.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.placement import DescribeTopicPartitionsRequest, TopicRequest


class Between:
    """Metadata in which somebody does something right before a transaction is judged, once."""

    def __init__(self, inner: Metadata, *operations: Operation) -> None:
        self._inner = inner
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        operations, self._operations = self._operations, ()
        if operations:
            await self._inner.txn([], operations)
        return await self._inner.txn(compare, then, otherwise)


def test_a_source_that_is_deleted_while_a_shadow_is_made_has_none() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        node = broker.serving.broker
        new = node.topic_admin.check_new("copy", -1, {SHADOW_SOURCE: "orders"})
        node.metadata = Between(node.metadata, Delete(topic_key("orders")))
        with pytest.raises(KafkaError, match="was deleted meanwhile"):
            await node.topic_admin.create(new)
        assert await node.metadata.get(topic_key("copy")) is None

    simulate_broker(scenario)


def test_a_shadow_that_comes_while_its_source_is_deleted_stops_that() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders")
        node = broker.serving.broker
        source = image(broker, "orders")
        rival = Topic("copy", UUID(int=7), 1, {}, source=SourceRef("orders", source_id, 1))
        listed = Put(topic_key("orders"), source.with_shadows(["copy"]).encode())
        node.metadata = Between(node.metadata, Put(topic_key("copy"), rival.encode()), listed)
        with pytest.raises(KafkaError, match="delete copy first"):
            await node.topic_admin.delete(source)
        assert await node.metadata.get(topic_key("orders")) is not None

    simulate_broker(scenario)


def test_a_subscription_that_comes_while_its_topic_grows_is_in_the_new_partitions_too() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        source_id = await client.create_topic("orders")
        node = broker.serving.broker
        record = Put(f"{subscriptions_prefix(source_id, 0)}late", SubscriberRecord("late", Position()).encode())
        left = Put(f"{subscriptions_prefix(source_id, 1)}left", b"")  # of a growth that came to nothing
        node.metadata = Between(node.metadata, record, Put(hold_key(source_id), b""), left)
        await node.topic_admin.grow("orders", 2)
        found = await node.metadata.range(subscriptions_prefix(source_id, 1))
        assert [subscriber_of_key(item.key) for item in found.items] == ["late"]

    simulate_broker(scenario)


def test_a_source_that_grows_while_a_shadow_is_made_or_gone_takes_all_along() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        node = broker.serving.broker
        grown = image(broker, "orders").with_partitions(3)
        new = node.topic_admin.check_new("copy", 1, {SHADOW_SOURCE: "orders"})
        node.metadata = Between(node.metadata, Put(topic_key("orders"), grown.encode()))
        assert (await node.topic_admin.create(new)).partitions == 3
        listed = replace(grown, shadows=("copy", "other"))
        other = Topic("other", UUID(int=8), 3, {}, source=SourceRef("orders", grown.id, 2))
        node.metadata = Between(
            node.metadata, Put(topic_key("other"), other.encode()), Put(topic_key("orders"), listed.encode())
        )
        await node.topic_admin.grow("orders", 5)
        assert [image(broker, name).partitions for name in ("orders", "copy", "other")] == [5, 5, 5]

    simulate_broker(scenario)


def test_two_shadows_made_at_once_get_two_places() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        admin = broker.serving.broker.topic_admin
        new = [admin.check_new(f"copy-{number}", -1, {SHADOW_SOURCE: "orders"}) for number in range(5)]
        async with trio.open_nursery() as nursery:
            for topic in new:
                nursery.start_soon(admin.create, topic)
        assert sorted(image(broker, topic.name).place for topic in new) == [1, 2, 3, 4, 5]
        assert sorted(image(broker, "orders").shadows) == sorted(topic.name for topic in new)

    simulate_broker(scenario)


async def put(broker: EmbeddedBroker, *operations: Operation) -> None:
    node = broker.serving.broker
    await node.topics.reached((await node.metadata.txn([], operations)).revision)


def test_deleting_a_shadow_touches_no_ledger_whatever_its_record_says() -> None:
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
            found = await broker.serving.broker.metadata.range(f"ledgers/topics/{source_id.hex}/")
            assert len(found.items) == 1
            await put(broker, Put(topic_key("orders"), image(broker, "orders").encode()))
            await put(broker, Put(topic_key("copy"), copy.encode()))
        assert await delete(client, "copy") == (0, None)
        assert (await client.fetch("orders", 0)).high_watermark == 1

    simulate_broker(scenario)


def test_a_damaged_list_of_shadows_neither_hides_one_nor_holds_its_source() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        await client.create_topic("plain")
        await cast(client, "copy", "orders")
        source = image(broker, "orders")
        await put(broker, Put(topic_key("orders"), source.with_shadows([]).encode()))
        assert (await delete(client, "orders"))[0] == ErrorCode.POLICY_VIOLATION
        await put(broker, Put(topic_key("orders"), source.with_shadows(["plain", "gone", "copy"]).encode()))
        assert (await delete(client, "orders"))[1] == (
            "Topic 'orders' has shadows that show its records: delete copy first."
        )
        assert await delete(client, "copy") == (0, None)
        assert await delete(client, "orders") == (0, None)
        assert image(broker, "plain").partitions == 1

    simulate_broker(scenario)


def test_a_shadow_whose_source_is_gone_says_so_and_can_be_deleted() -> None:
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
        assert (await told(client, "copy")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert [fields["topic"] for event, fields in broker.events if event == "shadow_ended"] == ["copy"]
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="copy")], response_partition_limit=10)
        assert (await client.ask(request, 0)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        await client.create_topic("orders")
        await client.produce("orders", batch("b"))
        assert (await told(client, "copy")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (await client.fetch("copy", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete(client, "copy") == (0, None)
        assert (await client.fetch("orders", 0)).high_watermark == 1

    simulate_broker(scenario)


def test_a_source_with_a_hundred_shadows_grows_in_a_transaction_that_an_etcd_takes() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client = await broker.connect()
        await client.create_topic("orders")
        for number in range(100):
            await cast(client, f"copy-{number}", "orders")
        metadata = broker.serving.broker.metadata
        txn, most = metadata.txn, 0

        async def counted(compare: Sequence[Compare], then: Sequence[Operation], *more: Any) -> TxnResult:
            nonlocal most
            most = max(most, len(compare), len(then))
            return await txn(compare, then, *more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata, "txn", counted)
            await broker.serving.broker.topic_admin.grow("orders", 2)
        assert image(broker, "copy-99").partitions == 2
        assert 100 < most <= 128

    simulate_broker(scenario)
