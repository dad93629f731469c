"""Deletions of subscriptions during calls of other consumers, on one simulated broker."""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack
from typing import Any

import pytest
import trio
from native_calls import native, orders, rpc, values

from gnomon.broker.subscriptions.hosted_partition import HostedPartition
from gnomon.broker.subscriptions.positions.metadata_store import MetadataSubscriptionsStore
from gnomon.client.client import connect
from gnomon.client.errors import SubscriptionTaken, Unavailable
from gnomon.client.leaders import Leaders
from gnomon.log.entry import Offset
from gnomon.testing.storms.kafka.embedded_broker import HOST, NATIVE_PORT, EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.records import Record, build_batch


def test_two_concurrent_deletions_of_a_subscription_both_succeed() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        async with rpc(broker) as peer, peer.stream("receive"):
            await peer.call("subscribe", "orders", 0, "exclusive", "earliest", [["one", 1, "me", 1]])
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(peer.call, "unsubscribe", "orders", 0, "one", "me", True)
            assert await peer.call("stats", "orders", 0, []) == {}

    simulate_broker(scenario)


def test_a_seek_during_a_deletion_leaves_the_subscription_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = MetadataSubscriptionsStore.delete_subscriber

    async def slowly(store: MetadataSubscriptionsStore, subscriber: str) -> None:
        await delete(store, subscriber)
        await trio.sleep(1.0)

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        async with rpc(broker) as peer, peer.stream("receive"), trio.open_nursery() as nursery:
            await peer.call("subscribe", "orders", 0, "exclusive", "earliest", [["one", 1, "me", 1]])
            nursery.start_soon(peer.call, "unsubscribe", "orders", 0, "one", "me", True)
            await trio.sleep(0.5)
            with pytest.raises(Unavailable, match="was deleted"):
                await peer.call("seek", "orders", 0, "one", "earliest", [])
        assert (await broker.serving.broker.storage.metadata.range("subscriptions/")).items == ()

    monkeypatch.setattr(MetadataSubscriptionsStore, "delete_subscriber", slowly)
    simulate_broker(scenario)


def test_a_consumer_that_subscribes_during_a_deletion_creates_the_subscription_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create, delete = HostedPartition.create, MetadataSubscriptionsStore.delete_subscriber

    async def create_slowly(host: HostedPartition, names: Iterable[str], offset: Offset) -> None:
        await create(host, names, offset)
        await trio.sleep(0.5)

    async def delete_slowly(store: MetadataSubscriptionsStore, subscriber: str) -> None:
        await delete(store, subscriber)
        await trio.sleep(1.0)

    async def scenario(broker: EmbeddedBroker) -> None:
        async def come() -> None:
            consumer = await other.subscribe("orders", "one", type="shared", initial_position="earliest")
            assert await values(consumer, 3) == [0, 1, 2]

        await orders(broker, 2)
        other_client = connect(f"{HOST}:{NATIVE_PORT}", world=broker.client_world, name="other")
        async with native(broker) as client, other_client as other, trio.open_nursery() as nursery:
            consumer = await client.subscribe("orders", "one", type="shared")
            nursery.start_soon(come)
            await trio.sleep(0.25)
            await consumer.unsubscribe()
            await orders(broker, 1, first=2)

    monkeypatch.setattr(HostedPartition, "create", create_slowly)
    monkeypatch.setattr(MetadataSubscriptionsStore, "delete_subscriber", delete_slowly)
    simulate_broker(scenario)


def test_a_subscription_is_deleted_also_in_partitions_that_its_consumer_does_not_know() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one")
            await broker.serving.broker.topic_admin.grow("orders", 3)
            await consumer.unsubscribe()
            assert (await broker.serving.broker.storage.metadata.range("subscriptions/")).items == ()

    simulate_broker(scenario)


def test_a_consumer_that_loses_its_broker_while_it_unsubscribes_does_not_create_the_subscription_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Leaders.ask

    async def scenario(broker: EmbeddedBroker) -> None:
        async def ask_then_restart(leaders: Leaders, topic: str, partition: int, *args: Any) -> Any:
            answer = await ask(leaders, topic, partition, *args)
            if partition == 0:
                await broker.restart()
            return answer

        await (await broker.connect()).create_topic("orders", partitions=2)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "one")
            monkeypatch.setattr(Leaders, "ask", ask_then_restart)
            await consumer.unsubscribe()
            await trio.sleep(10.0)
            assert (await broker.serving.broker.storage.metadata.range("subscriptions/")).items == ()

    simulate_broker(scenario)


def test_a_consumer_whose_unsubscribe_is_refused_continues() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 2)
        async with native(broker) as client, rpc(broker) as peer, peer.stream("receive"):
            consumer = await client.subscribe("orders", "one", type="failover", initial_position="earliest")
            assert await values(consumer, 1) == [0]
            await peer.call("subscribe", "orders", 0, "failover", "earliest", [["one", 1, "me", 1]])
            with pytest.raises(SubscriptionTaken):
                await consumer.unsubscribe()
            await peer.call("close_consumers", pack("<I", 1))
            assert await values(consumer, 1) == [1]

    simulate_broker(scenario)


def test_a_deletion_refused_by_one_partition_skips_no_records_of_the_others() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("orders", partitions=2)
        async with native(broker) as client, rpc(broker) as peer, peer.stream("receive"):
            one = await client.subscribe("orders", "one", type="shared")
            for partition in (0, 1):
                batch = build_batch([Record(value=b"%d" % partition)], base_timestamp=1)
                assert (await kafka.produce("orders", batch, partition)).error_code == 0
            await peer.call("subscribe", "orders", 1, "shared", "latest", [["one", 1, "me", 0]])
            with pytest.raises(SubscriptionTaken):
                await one.unsubscribe()
            with trio.fail_after(60):
                assert sorted(await values(one, 2)) == [0, 1]

    simulate_broker(scenario)


def test_a_consumer_of_a_half_deleted_subscription_makes_the_other_one_miss_no_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("orders", partitions=2)
        async with native(broker) as client, rpc(broker) as peer, peer.stream("receive"):
            one = await client.subscribe("orders", "one", type="shared")
            batch = build_batch([Record(value=b"0")], base_timestamp=1)
            assert (await kafka.produce("orders", batch, 0)).error_code == 0
            delete = HostedPartition.delete

            async def delete_and_be_late(*args: Any) -> None:
                await delete(*args)
                await peer.call("subscribe", "orders", 1, "shared", "latest", [["one", 1, "me", 0]])

            monkeypatch.setattr(HostedPartition, "delete", delete_and_be_late)
            with pytest.raises(SubscriptionTaken):
                await one.unsubscribe()
            with trio.fail_after(60):
                assert await values(one, 1) == [0]

    simulate_broker(scenario)
