"""Backlog quotas, and the notification of subscriptions whose records were deleted."""

from __future__ import annotations

import pytest
from native_calls import FLUSHED_SECONDS, SELDOM, delete_records, play, read, start_of, values

from gnomon.broker.partition.stretches import Stretch, bytes_from, offset_for_bytes
from gnomon.broker.retention.backlog import LOOK_SECONDS
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.client.client import NativeClient, connect
from gnomon.client.consumer import Consumer
from gnomon.client.errors import RecordsMissed
from gnomon.log.entry import Offset
from gnomon.log.subscription_keys import reader_key, subscriptions_prefix
from gnomon.metadata.client import Put
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import NATIVE_PORT, BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import BrokerClient, EmbeddedBroker
from gnomon.testing.storms.kafka.storm_clients import create_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.produce import PartitionProduceResponse
from gnomon.wire.kafka.records import Record, build_batch

LOOKED_SECONDS = LOOK_SECONDS + 1
BATCH_BYTES = 1080
"""The largest size of a batch of `produce`."""
DROP = {"gnomon.backlog.quota.policy": "drop-oldest"}


def bytes_of(batches: int) -> dict[str, str]:
    return {"gnomon.backlog.quota.bytes": str(batches * BATCH_BYTES)}


async def produce(broker: EmbeddedBroker, client: BrokerClient, number: int) -> PartitionProduceResponse:
    record = Record(value=(b"%d" % number).ljust(1000))
    batch = build_batch([record], base_timestamp=broker.client_world.clock.wall_ms())
    assert BATCH_BYTES - 20 < len(batch) <= BATCH_BYTES
    return await client.produce("orders", batch)


async def orders(broker: EmbeddedBroker, client: BrokerClient, count: int, configs: dict[str, str]) -> None:
    """Creates the topic `orders` with `count` batches of one record, five to a segment."""
    segment = {"segment.bytes": str(5 * BATCH_BYTES), "retention.ms": "-1"}
    await client.create_topic("orders", configs={**segment, **configs})
    await more(broker, client, 0, count)


async def more(broker: EmbeddedBroker, client: BrokerClient, first: int, count: int) -> None:
    for number in range(first, first + count):
        assert (await produce(broker, client, number)).error_code == 0


async def missed(consumer: Consumer) -> tuple[int, int]:
    with pytest.raises(RecordsMissed) as told:
        await consumer.receive()
    return told.value.first, told.value.end


# --- measuring ----------------------------------------------------------------------------------------------------

STRETCHES = [
    Stretch(Offset(first), Offset(end), size) for first, end, size in ((10, 20, 100), (20, 24, 400), (24, 24, 0))
]


def test_bytes_inside_a_segment_count_by_its_records() -> None:
    assert [bytes_from(STRETCHES, Offset(at)) for at in (0, 10, 15, 20, 21, 24, 30)] == [500, 500, 450, 400, 300, 0, 0]


@pytest.mark.parametrize("bytes_max", [0, 1, 99, 100, 101, 399, 400, 401, 450, 499, 500, 900])
def test_the_offset_for_a_size_is_the_first_that_fits(bytes_max: int) -> None:
    offset = offset_for_bytes(STRETCHES, bytes_max)
    assert bytes_from(STRETCHES, offset) <= bytes_max
    assert offset == 10 or bytes_from(STRETCHES, Offset(offset - 1)) > bytes_max


# --- refusing -----------------------------------------------------------------------------------------------------


def test_a_backlog_beyond_the_quota_refuses_produce_with_the_subscriptions_name_until_it_is_read() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 4, bytes_of(4))
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(broker, client, 4, 1)
        await broker.simulation.sleep(LOOKED_SECONDS)
        refused = await produce(broker, client, 5)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert refused.error_message is not None
        assert "subscription 'billing' of topic 'orders' has not read" in refused.error_message
        assert await read(consumer, 2) == [0, 1]
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(broker, client, 5, 1)
        assert start_of(broker) == 0

    play(scenario)


def test_a_shadows_subscription_counts_and_a_deleted_subscription_does_not() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 5, bytes_of(4))
        await client.create_topic("copy", partitions=-1, configs={SHADOW_SOURCE: "orders"})
        consumer = await subscriber.subscribe("copy", "screens", initial_position="earliest")
        await broker.simulation.sleep(LOOKED_SECONDS)
        refused = await produce(broker, client, 5)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert "'screens' of topic 'copy'" in (refused.error_message or "")
        await consumer.unsubscribe()
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(broker, client, 5, 1)

    play(scenario)


def test_a_topic_without_subscriptions_has_no_backlog() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, _: NativeClient) -> None:
        await orders(broker, client, 5, {**bytes_of(1), "gnomon.backlog.quota.ms": "0"})
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(broker, client, 5, 1)

    play(scenario)


def test_positions_are_not_read_again_while_the_last_known_ones_are_within_the_quota() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 2, {"gnomon.backlog.quota.ms": "100000"})
        await subscriber.subscribe("orders", "billing", initial_position="earliest")
        node = broker.serving.broker
        metadata = node.storage.metadata = CountingMetadata(node.storage.metadata)
        reads = []
        for _ in range(3):
            with metadata.measure() as cost:
                await node.backlog_quotas.look()
            reads.append(cost.reads)
        assert reads == [3, 1, 1], "the key, the topic's record and the positions; then the key alone"
        await subscriber.subscribe("orders", "another")
        with metadata.measure() as cost:
            await node.backlog_quotas.look()
        assert cost.reads == 4

    play(scenario)


def test_a_quota_in_milliseconds_limits_the_age_of_the_oldest_unread_record() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 3, {"gnomon.backlog.quota.ms": "15000"})
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(broker, client, 3, 1)
        await broker.simulation.sleep(LOOKED_SECONDS)
        refused = await produce(broker, client, 4)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert "gnomon.backlog.quota.ms allows 15000" in (refused.error_message or "")
        await read(consumer, 4)
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(broker, client, 4, 1)

    play(scenario)


def test_producers_are_accepted_again_after_the_quota_is_removed() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 5, bytes_of(4))
        await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await broker.simulation.sleep(LOOKED_SECONDS)
        assert (await produce(broker, client, 5)).error_code == ErrorCode.POLICY_VIOLATION
        admin = broker.serving.broker.topic_admin
        await admin.change("orders", lambda topic: topic.with_configs({}))
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(broker, client, 5, 1)

    play(scenario)


# --- dropping -----------------------------------------------------------------------------------------------------


def test_the_oldest_records_beyond_the_quota_are_dropped_logged_counted_and_reported_to_their_consumer() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 3, {**bytes_of(4), **DROP})
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest", queue_records=1)
        await read(consumer, 2)
        await more(broker, client, 3, 9)
        await broker.simulation.sleep(LOOKED_SECONDS)
        assert start_of(broker) == 8
        assert broker.serving.broker.metrics.backlog_records_dropped == 6
        (told,) = [fields for event, fields in broker.events if event == "backlog_dropped"]
        assert (told["subscription"], told["of_topic"], told["first"], told["end"]) == ("billing", "orders", 2, 8)
        assert await missed(consumer) == (2, 8)
        assert await read(consumer, 4) == [8, 9, 10, 11]  # and no record that had been sent before
        assert (await client.fetch("orders", 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    play(scenario)


def test_a_quota_in_milliseconds_drops_records_that_are_too_old() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 3, {"gnomon.backlog.quota.ms": "15000", **DROP})
        await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await broker.simulation.sleep(LOOKED_SECONDS)
        await more(broker, client, 3, 3)
        await broker.simulation.sleep(LOOKED_SECONDS)
        assert start_of(broker) == 3

    play(scenario)


def test_nothing_is_dropped_for_a_position_that_cannot_be_read() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, _: NativeClient) -> None:
        await orders(broker, client, 10, {**bytes_of(4), **DROP})
        node = broker.serving.broker
        topic_id = node.topics.find("orders").id
        broken = Put(f"{subscriptions_prefix(topic_id, 0)}broken", b"\xc1")
        await node.storage.metadata.txn((), (broken, Put(reader_key(topic_id, topic_id), b"orders")))
        await broker.simulation.sleep(LOOKED_SECONDS)
        assert start_of(broker) == 0
        assert (await produce(broker, client, 10)).error_code == ErrorCode.POLICY_VIOLATION

    play(scenario)


# --- notification of missed records -------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["orders", "copy"])
def test_a_consumer_is_notified_once_of_records_deleted_before_it_acknowledged_them(topic: str) -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 12, {})
        await client.create_topic("copy", partitions=-1, configs={SHADOW_SOURCE: "orders"})
        consumer = await subscriber.subscribe(topic, "billing", initial_position="earliest", queue_records=1)
        await read(consumer, 1)
        await delete_records(client, 12)
        await broker.simulation.sleep(FLUSHED_SECONDS)
        assert await missed(consumer) == (1, 12)
        await more(broker, client, 12, 1)
        while await values(consumer, 1) != [12]:
            pass
        assert await consumer.backlog() == 0

    play(scenario)


def test_a_consumer_that_had_read_everything_is_not_notified() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 7, {})
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest")
        await read(consumer, 7)
        await delete_records(client, 7)
        await more(broker, client, 7, 1)
        assert await read(consumer, 1) == [7]
        await consumer.close()
        await delete_records(client, 8)
        await broker.restart()
        await more(broker, await broker.connect(), 8, 1)
        again = await subscriber.subscribe("orders", "billing")
        assert await read(again, 1) == [8]

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("end_of_cut", [9, 10])
def test_a_consumer_that_was_away_is_notified_once_when_it_subscribes_again_also_after_a_restart(
    restarted: bool, end_of_cut: int
) -> None:
    """Segments begin at 0, 5 and 10."""

    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 12, {})
        consumer = await subscriber.subscribe("orders", "billing", initial_position="earliest", queue_records=1)
        await read(consumer, 6)
        await consumer.close()
        await delete_records(client, end_of_cut)
        if restarted:
            await broker.simulation.sleep(FLUSHED_SECONDS)
            await broker.restart()
        again = await subscriber.subscribe("orders", "billing")
        first, end = await missed(again)
        assert end == end_of_cut
        assert first == 6 or (restarted and first <= 6)
        assert await read(again, 12 - end_of_cut) == list(range(end_of_cut, 12))
        await broker.restart()
        await more(broker, await broker.connect(), 12, 1)
        assert await read(again, 1) == [12]

    play(scenario)


def test_a_listener_is_notified_by_a_callback() -> None:
    async def scenario(broker: EmbeddedBroker, client: BrokerClient, subscriber: NativeClient) -> None:
        await orders(broker, client, 3, {})
        told: list[RecordsMissed] = []
        await subscriber.subscribe_many(
            "orders",
            ["one", "two"],
            initial_position="earliest",
            listener=lambda consumer, message: None,
            on_missed=lambda consumer, error: told.append(error),
        )
        await delete_records(client, 3)
        await broker.simulation.sleep(1.0)
        assert [(each.subscription, each.first, each.end) for each in told] == [("one", 0, 3), ("two", 0, 3)]

    play(scenario)


def test_consumers_of_a_shadow_on_another_broker_are_notified_too() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, kafka=SELDOM)
        await cluster.start()

        async def work(client: WireCluster) -> None:
            await create_topic(client, "orders", {"segment.bytes": "14", "retention.ms": "-1"})
            await create_topic(client, "copy", {SHADOW_SOURCE: "orders"})
            addresses = ",".join(f"broker-{number}:{NATIVE_PORT}" for number in cluster.brokers)
            async with connect(addresses, world=client.world) as subscriber:
                consumer = await subscriber.subscribe("copy", "screens", queue_records=1)
                source = BrokerClient(await client.leader("orders", 0))
                for number in range(6):
                    batch = build_batch([Record(value=b"%d" % number)], base_timestamp=number)
                    assert (await source.produce("orders", batch)).error_code == 0
                assert await read(consumer, 2) == [0, 1]
                await delete_records(source, 5)
                await simulation.clock.sleep(FLUSHED_SECONDS)
                assert await missed(consumer) == (2, 5)
                while await values(consumer, 1) != [5]:
                    pass

        await cluster.run_client("client", work)

    simulate(1, scenario)
