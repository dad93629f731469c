"""The native client against real brokers: reads, acknowledgements and redeliveries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from flights import FLUSHED_SECONDS, NOTHING_SECONDS, produce
from native_calls import values

import gnomon
from gnomon.client.errors import InvalidCall, NoSuchTopic, SubscriptionTaken
from gnomon.testing.kafka_broker import KafkaBroker


def with_client(broker: KafkaBroker, work: Callable[[gnomon.NativeClient], Awaitable[None]]) -> None:
    async def main() -> None:
        with trio.fail_after(30):
            async with gnomon.connect(broker.native_address) as client:
                await work(client)

    trio.run(main)


async def nothing_comes(consumer: gnomon.Consumer) -> bool:
    with trio.move_on_after(NOTHING_SECONDS):
        await consumer.receive()
        return False
    return True


def test_an_earliest_subscription_reads_all_records_and_resumes_after_the_acknowledged_ones(
    broker: KafkaBroker,
) -> None:
    produce(broker, range(100))

    async def first(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "billing", initial_position="earliest")
        messages = [await consumer.receive() for _ in range(100)]
        assert [int(message.value or b"") for message in messages] == list(range(100))
        assert [message.offset for message in messages] == list(range(100))
        assert messages[37].key == b"2"
        assert messages[37].id.slot == 7
        for message in messages[:60]:
            consumer.ack(message)

    async def second(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "billing")
        assert await values(consumer, 40) == list(range(60, 100))
        assert await nothing_comes(consumer)

    with_client(broker, first)
    with_client(broker, second)


def test_a_latest_subscription_receives_later_records_only(broker: KafkaBroker) -> None:
    produce(broker, range(10))

    async def work(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "late", initial_position="latest")
        assert await nothing_comes(consumer)
        await trio.to_thread.run_sync(produce, broker, range(10, 12))
        assert await values(consumer, 2) == [10, 11]
        assert await consumer.backlog() == 0

    with_client(broker, work)


def test_a_consumer_survives_the_death_of_its_broker(broker: KafkaBroker) -> None:
    produce(broker, range(20))

    async def work(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "billing", initial_position="earliest")
        assert await values(consumer, 15) == list(range(15))
        assert await consumer.backlog() == 5
        await trio.sleep(FLUSHED_SECONDS)
        await trio.to_thread.run_sync(broker.kill)
        await trio.to_thread.run_sync(broker.start)
        await trio.to_thread.run_sync(produce, broker, range(20, 30))
        assert await values(consumer, 15) == list(range(15, 30))

    with_client(broker, work)


def test_positions_are_stored_when_the_broker_is_stopped(broker: KafkaBroker) -> None:
    produce(broker, range(20))

    async def work(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "billing", initial_position="earliest")
        await values(consumer, 15)
        await consumer.stats()
        await trio.to_thread.run_sync(broker.stop)
        await trio.to_thread.run_sync(broker.start)
        assert await values(consumer, 5) == [15, 16, 17, 18, 19]

    with_client(broker, work)


def test_records_acknowledged_out_of_order_are_not_delivered_again(broker: KafkaBroker) -> None:
    produce(broker, range(30))

    async def work(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "billing", initial_position="earliest")
        for message in [await consumer.receive() for _ in range(30)]:
            if message.offset % 7 or message.offset == 0:
                consumer.ack(message)
        assert await consumer.backlog() == 4
        await trio.sleep(FLUSHED_SECONDS)
        await trio.to_thread.run_sync(broker.kill)
        await trio.to_thread.run_sync(broker.start)
        assert await values(consumer, 4) == [7, 14, 21, 28]
        assert await nothing_comes(consumer)

    with_client(broker, work)


def test_an_exclusive_subscription_has_one_consumer(broker: KafkaBroker) -> None:
    produce(broker, range(1))

    async def work(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "billing")
        with pytest.raises(SubscriptionTaken, match="has a consumer"):
            await client.subscribe("flights", "billing")
        with pytest.raises(SubscriptionTaken, match="is exclusive as long as"):
            await client.subscribe("flights", "billing", type="shared")
        await consumer.close()
        await client.subscribe("flights", "billing", type="shared")

    with_client(broker, work)


def test_invalid_options_are_refused_with_the_reason(broker: KafkaBroker) -> None:
    produce(broker, range(1))

    async def work(client: gnomon.NativeClient) -> None:
        with pytest.raises(NoSuchTopic, match="'nowhere' does not exist"):
            await client.subscribe("nowhere", "billing")
        with pytest.raises(InvalidCall, match="300"):
            await client.subscribe("flights", "x" * 400)
        unknown: Any = "queue"
        with pytest.raises(InvalidCall, match="not 'queue'"):
            await client.subscribe("flights", "billing", type=unknown)

    with_client(broker, work)


def test_a_shared_subscription_distributes_batches_and_redelivers_those_of_a_closed_consumer(
    broker: KafkaBroker,
) -> None:
    produce(broker, range(40))

    async def work(client: gnomon.NativeClient) -> None:
        one = await client.subscribe("flights", "billing", type="shared", initial_position="earliest")
        assert await values(one, 10) == list(range(10))
        two = await client.subscribe("flights", "billing", type="shared")
        await one.close()
        assert await values(two, 30) == list(range(10, 40))
        one = await client.subscribe("flights", "billing", type="shared")
        await trio.to_thread.run_sync(produce, broker, range(40, 60))
        assert sorted(await values(one, 10) + await values(two, 10)) == list(range(40, 60))

    with_client(broker, work)


def test_a_failover_subscription_continues_at_the_next_consumer(broker: KafkaBroker) -> None:
    produce(broker, range(20))

    async def work(client: gnomon.NativeClient) -> None:
        one = await client.subscribe("flights", "billing", type="failover", initial_position="earliest")
        two = await client.subscribe("flights", "billing", type="failover")
        assert await values(one, 12) == list(range(12))
        assert await nothing_comes(two)
        await one.close()
        assert await values(two, 8) == list(range(12, 20))

    with_client(broker, work)


def test_records_of_a_key_go_to_one_consumer_in_order(broker: KafkaBroker) -> None:
    produce(broker, range(20))

    async def work(client: gnomon.NativeClient) -> None:
        got: dict[str, list[int]] = {"one": [], "two": []}
        all_there = trio.Event()

        async def read(name: str, consumer: gnomon.Consumer) -> None:
            async for message in consumer:
                got[name].append(int(message.value or b""))
                consumer.ack(message)
                if sum(map(len, got.values())) == 100:
                    all_there.set()

        one = await client.subscribe("flights", "billing", type="key_shared", initial_position="earliest")
        two = await client.subscribe("flights", "billing", type="key_shared")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, "one", one)
            nursery.start_soon(read, "two", two)
            await trio.to_thread.run_sync(produce, broker, range(20, 100))
            await all_there.wait()
            nursery.cancel_scope.cancel()
        assert sorted(got["one"] + got["two"]) == list(range(100))
        for key in range(5):
            later = {
                name: [value for value in given if value % 5 == key and value >= 20] for name, given in got.items()
            }
            assert sorted(later.values()) == [[], list(range(20 + key, 100, 5))]

    with_client(broker, work)


def test_a_negative_acknowledgement_redelivers_a_record_after_its_delay(broker: KafkaBroker) -> None:
    produce(broker, range(10))

    async def work(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "billing", initial_position="earliest")
        messages = [await consumer.receive() for _ in range(10)]
        for message in messages:
            if message.offset == 3:
                consumer.nack(message, 4 * NOTHING_SECONDS)
            else:
                consumer.ack(message)
        assert await nothing_comes(consumer)
        assert await values(consumer, 1) == [3]
        assert await consumer.backlog() == 0

    with_client(broker, work)


def test_messages_not_acknowledged_in_time_are_delivered_again(broker: KafkaBroker) -> None:
    produce(broker, range(10))

    async def work(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe(
            "flights", "billing", type="shared", initial_position="earliest", ack_seconds=1.0
        )
        for message in [await consumer.receive() for _ in range(10)]:
            if message.offset not in (4, 5):
                consumer.ack(message)
        assert await values(consumer, 2) == [4, 5]

    with_client(broker, work)


def test_a_consumer_seeks_by_message_offset_time_and_to_either_end(broker: KafkaBroker) -> None:
    produce(broker, range(50))

    async def work(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "billing", initial_position="earliest")
        messages = [await consumer.receive() for _ in range(50)]
        consumer.ack_up_to(messages[-1])
        assert await consumer.backlog() == 0
        await consumer.seek(messages[23])
        assert await consumer.backlog() == 27
        assert await values(consumer, 2) == [23, 24]
        await consumer.seek_to_offset(0, 41)
        assert await values(consumer, 1) == [41]
        await consumer.seek_to_time(messages[30].timestamp_ms)
        assert await values(consumer, 1) == [30]
        await consumer.seek("earliest")
        assert await values(consumer, 1) == [0]
        await consumer.seek("latest")
        assert await nothing_comes(consumer)
        await consumer.seek_to_id(0, messages[7].id)
        assert await values(consumer, 1) == [7]

    with_client(broker, work)


def test_a_subscription_created_again_after_its_deletion_starts_at_its_initial_position(broker: KafkaBroker) -> None:
    produce(broker, range(10))

    async def work(client: gnomon.NativeClient) -> None:
        consumer = await client.subscribe("flights", "billing", initial_position="earliest")
        await values(consumer, 10)
        await consumer.unsubscribe()
        consumer = await client.subscribe("flights", "billing", initial_position="earliest")
        assert await values(consumer, 1) == [0]

    with_client(broker, work)


def test_a_thousand_subscriptions_of_one_connection_share_one_copy_of_a_batch(broker: KafkaBroker) -> None:
    produce(broker, range(1))
    names = [f"reader-{number}" for number in range(1000)]

    def listen(consumer: gnomon.Consumer, message: gnomon.Message) -> None:
        kept.append(message)
        consumer.ack(message)
        if len(kept) == 3000:
            all_there.set()

    kept: list[gnomon.Message] = []
    all_there = trio.Event()

    async def work(client: gnomon.NativeClient) -> None:
        consumers = await client.subscribe_many("flights", names, listener=listen)
        await trio.to_thread.run_sync(produce, broker, range(10, 13))
        await all_there.wait()
        assert len({id(message.batch) for message in kept}) == 1
        assert {message.part.consumer.name for message in kept} == set(names)
        assert await consumers[500].backlog() == 0

    with_client(broker, work)


def test_a_consumer_reads_all_partitions_of_a_topic() -> None:
    settings = {"num.partitions": 3, "auto.create.topics.enable": True}
    with KafkaBroker(settings=settings) as broker:
        produce(broker, range(60))

        async def work(client: gnomon.NativeClient) -> None:
            consumer = await client.subscribe("flights", "billing", initial_position="earliest")
            assert sorted(await values(consumer, 60)) == list(range(60))
            assert [each["backlog"] for each in await consumer.stats()] == [0, 0, 0]

        with_client(broker, work)
