"""Retention waits for durable subscriptions: those of the topic and those of its shadows on any broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from native_calls import SELDOM, native, play, read

from gnomon.broker.subscriptions.positions.hold import read_hold
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.client.client import NativeClient, connect
from gnomon.client.consumer import Consumer
from gnomon.client.errors import RecordsMissed
from gnomon.log.dlsn import AT_BEGINNING
from gnomon.log.subscription_keys import hold_key, subscriber_of_key, subscriptions_prefix
from gnomon.log.topic import topic_key
from gnomon.metadata.client import Delete, Event, Put
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.records import Record, build_batch

ONE_RECORD_A_SEGMENT = {"segment.bytes": "14", "retention.bytes": "0", "retention.ms": "-1"}


async def orders(client: BrokerClient, count: int, configs: dict[str, str] | None = None) -> None:
    """Creates the topic `orders` with `count` segments of one record, all of them due for retention."""
    await client.create_topic("orders", configs={**ONE_RECORD_A_SEGMENT, **(configs or {})})
    await more(client, 0, count)


async def more(client: BrokerClient, first: int, count: int) -> None:
    for number in range(first, first + count):
        batch = build_batch([Record(value=b"%d" % number)], base_timestamp=number)
        assert (await client.produce("orders", batch)).error_code == 0


async def trimmed(broker: EmbeddedBroker) -> int:
    """Enforces retention; returns the start of the log."""
    node = broker.serving.broker
    await node.retention.enforce()
    topic = node.topics.image.get("orders")
    assert topic is not None
    log = await node.partitions.use(topic, 0).opened()
    assert log is not None
    return log.start_offset


async def cast(client: BrokerClient, name: str = "copy") -> None:
    await client.create_topic(name, partitions=-1, configs={SHADOW_SOURCE: "orders"})


def test_a_topic_without_subscriptions_is_trimmed_by_time_and_size_alone() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, _: NativeClient) -> None:
        await orders(client, 5)
        assert await trimmed(broker) == 5

    play(scenario)


def test_records_are_trimmed_once_every_subscription_has_read_them_and_not_before() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5)
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        quick = await subscriber.subscribe("orders", "quick", initial_position="earliest")
        assert await trimmed(broker) == 0
        assert await read(quick, 5) == [0, 1, 2, 3, 4]
        assert await read(consumer, 3) == [0, 1, 2]
        assert await trimmed(broker) == 3
        assert await read(consumer, 2) == [3, 4]
        assert await trimmed(broker) == 5

    play(scenario)


def test_records_that_are_not_due_by_time_or_size_stay_although_they_were_read() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5, {"retention.bytes": "-1", "retention.ms": "-1"})
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await read(consumer, 5)
        assert await trimmed(broker) == 0

    play(scenario)


def test_a_topic_with_hold_none_is_trimmed_although_a_subscription_has_not_read_it() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5, {"gnomon.retention.hold": "none"})
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        assert await trimmed(broker) == 5
        await more(client, 5, 1)
        with pytest.raises(RecordsMissed, match="between offsets 0 and 5"):
            await consumer.receive()

    play(scenario)


def test_a_subscription_that_reads_a_sealed_segment_to_its_end_does_not_hold_it() -> None:
    """The position is the end of a segment that was rolled since, and no record comes after it."""

    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 3, {"retention.bytes": "-1", "retention.ms": "1000"})
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await read(consumer, 3)
        await broker.simulation.sleep(5.0)
        assert await trimmed(broker) == 3
        await more(client, 3, 1)
        assert await read(consumer, 1) == [3]

    play(scenario)


def test_records_are_held_until_the_subscriptions_of_source_and_shadow_have_both_read_them() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5)
        await cast(client)
        own = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        other = await subscriber.subscribe("copy", "screens", initial_position="earliest")
        await read(own, 4)
        assert await trimmed(broker) == 0
        await read(other, 2)
        assert await trimmed(broker) == 2
        await read(other, 3)
        assert await trimmed(broker) == 4
        assert await read(own, 1) == [4]

    play(scenario)


def test_subscriptions_hold_the_new_partitions_of_a_topic_before_any_consumer_reads_them() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 1)
        await cast(client)
        await subscriber.subscribe("orders", "billing")
        gone = await subscriber.subscribe("orders", "gone")
        await subscriber.subscribe("copy", "screens")
        await gone.unsubscribe()
        node = broker.serving.broker
        await node.topic_admin.grow("orders", 2)
        hold = await read_hold(node.storage.metadata, node.storage.bookies, node.topics.find("orders"))
        lowest = hold.lowest(1)
        assert lowest is not None
        assert lowest.position == AT_BEGINNING
        for topic, names in (("orders", ["billing"]), ("copy", ["screens"])):
            found = await node.storage.metadata.range(subscriptions_prefix(node.topics.find(topic).id, 1))
            assert [subscriber_of_key(item.key) for item in found.items] == names

    play(scenario)


def test_a_deleted_subscription_and_the_subscriptions_of_a_deleted_shadow_hold_nothing() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5)
        await cast(client)
        own = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await subscriber.subscribe("copy", "screens", initial_position="earliest")
        assert await trimmed(broker) == 0
        await own.unsubscribe()
        assert await trimmed(broker) == 0
        node = broker.serving.broker
        await node.topic_admin.delete(node.topics.find("copy"))
        assert await trimmed(broker) == 5

    play(scenario)


def test_a_subscription_without_consumers_holds_records_after_a_restart_of_the_broker() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(await broker.connect(), 5)
        async with native(broker) as subscriber:
            await read(await subscriber.subscribe("orders", "billing", initial_position="earliest"), 2)
        await broker.restart()
        assert await trimmed(broker) == 2

    simulate_broker(scenario, kafka=SELDOM)


def test_a_damaged_position_holds_everything_and_is_logged_with_its_subscription() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5)
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await read(consumer, 5)
        node = broker.serving.broker
        prefix = subscriptions_prefix(node.topics.find("orders").id, 0)
        await node.storage.metadata.txn((), (Put(f"{prefix}broken", b"\xc1"),))
        assert await trimmed(broker) == 0
        told = [fields for event, fields in broker.events if event == "position_unreadable"]
        assert [(each["subscription"], each["partition"]) for each in told] == [("broken", 0)]
        await node.storage.metadata.txn((), (Delete(f"{prefix}broken"),))
        assert await trimmed(broker) == 5

    play(scenario)


def _overtaken(broker: EmbeddedBroker, act: Callable[[], Awaitable[object]], times: int = 1) -> list[str]:
    """Runs `act` right before a transaction that deletes segments, at most `times` times."""
    node = broker.serving.broker
    inner, done = node.storage.metadata, list[str]()

    class Overtaken:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        async def txn(self, compare: Any, then: Any, otherwise: Any = ()) -> Any:
            deletes = [each for each in then if isinstance(each, Delete) and each.key.startswith("ledgers/topics/")]
            if deletes and len(done) < times:
                done.append(deletes[0].key)
                await act()
            return await inner.txn(compare, then, otherwise)

    overtaken: Any = Overtaken()
    for _, _, partition in node.partitions.with_own_log():
        partition._chain._metadata = overtaken
    node.storage.metadata = overtaken
    return done


@pytest.mark.parametrize("topic", ["orders", "copy"])
def test_a_subscription_created_during_a_trim_loses_nothing(topic: str) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5)
        await cast(client)
        made: list[Consumer] = []

        async def subscribe() -> None:
            made.append(await subscriber.subscribe(topic, "late", initial_position="earliest"))

        done = _overtaken(broker, subscribe)
        assert await trimmed(broker) == 0
        assert len(done) == 1
        assert await read(made[0], 5) == [0, 1, 2, 3, 4]

    play(scenario)


def test_a_trim_that_conflicts_with_a_new_subscription_is_retried() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5)
        done = _overtaken(broker, lambda: subscriber.subscribe("orders", "late", initial_position="latest"))
        assert await trimmed(broker) == 5
        assert len(done) == 1

    play(scenario)


def test_a_subscription_reset_during_a_trim_loses_nothing() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5)
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await read(consumer, 5)
        done = _overtaken(broker, lambda: consumer.seek("earliest"))
        assert await trimmed(broker) == 0
        assert len(done) == 1
        assert await read(consumer, 5) == [0, 1, 2, 3, 4]

    play(scenario)


def test_a_shadows_subscriptions_count_although_this_brokers_image_lacks_the_shadow() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 3)
        node = broker.serving.broker
        await cast(client)
        await subscriber.subscribe("copy", "screens", initial_position="earliest")
        node.topics.image.apply(Event(topic_key("copy"), None))
        assert node.topics.image.shadows_of(node.topics.find("orders")) == []
        hold = await read_hold(node.storage.metadata, node.storage.bookies, node.topics.find("orders"))
        lowest = hold.lowest(0)
        assert lowest is not None
        assert (lowest.topic, lowest.subscription) == ("copy", "screens")
        assert await trimmed(broker) == 0

    play(scenario)


def test_a_topic_deleted_while_its_positions_are_read_does_not_stop_retention() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 5)
        await subscriber.subscribe("orders", "billing")
        node = broker.serving.broker
        inner, topic = node.storage.metadata, node.topics.find("orders")
        ((_, _, partition),) = node.partitions.with_own_log()

        class Deleting:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            async def range(self, prefix: str) -> Any:
                found = await inner.range(prefix)
                if prefix.startswith("subscriptions/") and partition.log is not None:
                    await node.topic_admin.delete(topic)
                    assert partition.log is None
                return found

        deleting: Any = Deleting()
        node.storage.metadata = deleting
        await node.retention.enforce()
        assert partition.log is None

    play(scenario)


def test_the_hold_key_is_deleted_with_its_topic() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(client, 2)
        await subscriber.subscribe("orders", "billing")
        node = broker.serving.broker
        topic = node.topics.find("orders")
        assert await node.storage.metadata.get(hold_key(topic.id)) is not None
        await node.topic_admin.delete(topic)
        assert await node.storage.metadata.get(hold_key(topic.id)) is None

    play(scenario)


# --- several brokers ----------------------------------------------------------------------------------------------


async def _retained(cluster: BrokerCluster) -> int:
    """Enforces retention at the source's broker; returns the start of the log."""
    node = cluster.serving[cluster.leader("orders", 0)].broker
    await node.retention.enforce()
    log = await node.partitions.use(node.topics.find("orders"), 0).opened()
    assert log is not None
    return log.start_offset


def test_a_subscription_of_a_shadow_on_another_broker_holds_also_while_that_broker_is_dead() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, kafka=SELDOM)
        await cluster.start()

        async def work(client: WireCluster) -> None:
            await create_topic(client, "orders", ONE_RECORD_A_SEGMENT)
            await create_topic(client, "copy", {SHADOW_SOURCE: "orders"})
            assert cluster.leader("copy", 0) != cluster.leader("orders", 0)
            addresses = ",".join(f"broker-{number}:{NATIVE_PORT}" for number in cluster.brokers)
            async with connect(addresses, world=client.world) as subscriber:
                own = await subscriber.subscribe("orders", "billing", initial_position="earliest")
                other = await subscriber.subscribe("copy", "screens", initial_position="earliest")
                await more(BrokerClient(await client.leader("orders", 0)), 0, 6)
                await read(own, 6)
                assert await _retained(cluster) == 0
                assert await read(other, 3) == [0, 1, 2]
                assert await _retained(cluster) == 3
                cluster.brokers[cluster.leader("copy", 0)].kill()
                assert await _retained(cluster) == 3
                assert await read(other, 3) == [3, 4, 5]
                assert await _retained(cluster) == 6

        await cluster.run_client("client", work)

    simulate(1, scenario)
