"""An operator's calls about subscriptions: list, describe, seek and delete, on one simulated broker."""

from __future__ import annotations

import pytest
import trio
from native_calls import FLUSHED_SECONDS, native, orders, read, rpc, values

from gnomon.broker.native import subscription_admin
from gnomon.client import subscriptions
from gnomon.client.described_subscription import ListedSubscription
from gnomon.client.errors import InvalidCall, NoSuchSubscription, NoSuchTopic, SubscriptionTaken
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from gnomon.wire.kafka.records import Record, build_batch


def test_a_list_is_read_in_pages_and_names_every_subscription_once_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "PAGE", 3)
    names = [f"reader-{number:02}" for number in range(10)]

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client:
            await client.subscribe_many("orders", list(reversed(names)), initial_position="earliest")
            listed = await client.subscriptions.list("orders")
            assert [each.name for each in listed] == names
            assert listed[0] == ListedSubscription("orders", "reader-00", "exclusive", 1, 3, 1)
            some = await client.subscriptions.list("orders", after="reader-04", count=4)
            assert [each.name for each in some] == names[5:9]
            assert await client.subscriptions.list("orders", after="reader-09") == []
            assert await client.subscriptions.topics() == ["orders"]

    simulate_broker(scenario)


def test_a_subscription_that_only_one_partition_has_is_listed_described_and_deleted() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        client = await broker.connect()
        grown = CreatePartitionsTopic(name="orders", count=3, assignments=None)
        await client.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 1)
        async with native(broker) as operator, rpc(broker) as peer:
            async with peer.stream("receive"):
                await peer.call("subscribe", "orders", 1, "exclusive", "earliest", [["left over", 1, "me", 1]])
                await peer.call("close_consumers", b"\1\0\0\0")
            (listed,) = await operator.subscriptions.list("orders")
            assert (listed.name, listed.partitions) == ("left over", 1)
            described = await operator.subscriptions.describe("orders", "left over")
            assert [each.partition for each in described.partitions] == [1]
            await operator.subscriptions.delete("orders", "left over")
            assert await operator.subscriptions.list("orders") == []

    simulate_broker(scenario)


def test_a_description_shows_the_position_the_backlog_the_consumers_and_their_addresses() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client, native(broker) as operator:
            consumer = await client.subscribe("orders", "billing", type="shared", initial_position="earliest")
            await values(consumer, 3)
            await trio.sleep(FLUSHED_SECONDS)
            found = await operator.subscriptions.describe("orders", "billing")
            (at,) = found.partitions
            assert (found.type, at.offset, at.end, at.backlog_records) == ("shared", 3, 10, 7)
            assert 0 < at.backlog_bytes < 10 * 100
            assert at.backlog_seconds is not None
            assert (at.held_records, at.held_bytes) == (0, 0)
            (one,) = found.consumers
            assert one.partition == 0
            assert one.address.rpartition(":")[0]
            await values(consumer, 7)
            await trio.sleep(FLUSHED_SECONDS)
            (at,) = (await operator.subscriptions.describe("orders", "billing")).partitions
            assert (at.backlog_records, at.backlog_bytes, at.backlog_seconds) == (0, 0, 0.0)
            assert broker.serving.broker.placement.node_id == at.broker

    simulate_broker(scenario)


def test_an_operators_seek_moves_the_subscription_under_its_consumer() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client, native(broker) as operator:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            await read(consumer, 10)
            assert await operator.subscriptions.seek_to_offset("orders", "billing", 8) == {0: 8}
            assert await values(consumer, 2) == [8, 9]
            assert await operator.subscriptions.seek_to_time("orders", "billing", 6) == {0: 6}
            assert await values(consumer, 1) == [6]
            assert await operator.subscriptions.seek("orders", "billing", "earliest", partitions=[0]) == {0: 0}
            assert await values(consumer, 1) == [0]
            with pytest.raises(InvalidCall, match="partitions 0 to 0, not 3"):
                await operator.subscriptions.seek("orders", "billing", "latest", partitions=[3])
            with pytest.raises(NoSuchSubscription, match="has no subscription 'other'"):
                await operator.subscriptions.seek("orders", "other", "latest")

    simulate_broker(scenario)


def test_a_subscription_with_consumers_is_not_deleted_by_an_operator() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client, native(broker) as operator:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            with pytest.raises(SubscriptionTaken, match="'billing' has consumers: close them first"):
                await operator.subscriptions.delete("orders", "billing")
            assert await values(consumer, 3) == [0, 1, 2]
            await consumer.close()
            await operator.subscriptions.delete("orders", "billing")
            with pytest.raises(NoSuchSubscription):
                await operator.subscriptions.describe("orders", "billing")
            with pytest.raises(NoSuchTopic):
                await operator.subscriptions.list("nothing")

    simulate_broker(scenario)


def test_a_page_of_subscriptions_is_described_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_admin, "DESCRIBED_PER_TURN", subscription_admin.SUBSCRIPTION_WEIGHT)

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        async with native(broker) as client, rpc(broker) as peer:
            await client.subscribe_many("orders", [f"reader-{number}" for number in range(200)])
            began = trio.current_time()
            page, _ = await peer.call("subscriptions", "orders", 0, "", 200)
            assert len(page) == 200
            assert trio.current_time() - began > 199 * PAUSE_SECONDS

    simulate_broker(scenario)


def test_a_description_shows_the_records_that_a_subscription_holds_back_from_retention() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("orders", configs={"segment.bytes": "1000", "retention.bytes": "0"})
        for number in range(40):
            await kafka.produce("orders", build_batch([Record(value=bytes(100))], base_timestamp=number))
        async with native(broker) as client:
            await (await client.subscribe("orders", "idle", initial_position="earliest")).close()
            await (await client.subscribe("orders", "late", initial_position="latest")).close()
            idle = await client.subscriptions.describe("orders", "idle")
            late = await client.subscriptions.describe("orders", "late")
            assert (late.held_records, late.held_bytes) == (0, 0)
            assert 30 <= idle.held_records < 40, "every record but those of the segment being written"
            assert 0.7 < idle.held_bytes / idle.backlog_bytes < 1
            await client.subscriptions.seek_to_offset("orders", "idle", idle.held_records)
            assert (await client.subscriptions.describe("orders", "idle")).held_records == 0

    simulate_broker(scenario)
