"""Seeks of consumers with unread deliveries: no record sent before a seek is received after it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from native_calls import native, orders

from gnomon.client.consumer_options import Type
from gnomon.client.leaders import Leaders
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.testing.storms.subscriptions.slow_streams import slow_streams
from gnomon.wire.kafka.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from gnomon.wire.kafka.records import Record, build_batch

BATCHES = 300


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
def test_the_next_message_after_a_seek_is_the_requested_one_despite_earlier_deliveries(kind: Type) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, BATCHES)
        with slow_streams(lambda: 0.001):
            async with native(broker) as client:
                consumer = await client.subscribe("orders", "billing", type=kind, initial_position="earliest")
                messages = [await consumer.receive() for _ in range(20)]
                for message in (messages[7], messages[11], messages[0]):
                    await trio.sleep(0.01)
                    await consumer.seek(message)
                    assert [(await consumer.receive()).offset for _ in range(2)] == [message.offset, message.offset + 1]

    simulate_broker(scenario)


def test_a_cumulative_acknowledgement_after_a_seek_covers_no_record_after_its_message() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, BATCHES)
        with slow_streams(lambda: 0.001):
            async with native(broker) as client:
                consumer = await client.subscribe("orders", "billing", initial_position="earliest")
                messages = [await consumer.receive() for _ in range(20)]
                await consumer.seek(messages[0])
                consumer.ack_up_to(await consumer.receive())
                assert await consumer.backlog() == BATCHES - 1

    simulate_broker(scenario)


def test_a_connection_lost_while_hundreds_of_deliveries_wait_is_replaced_and_no_call_is_refused() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, BATCHES)
        with slow_streams(lambda: 0.001):
            async with native(broker) as client:
                consumer = await client.subscribe("orders", "billing", initial_position="earliest")
                consumer.ack_up_to([await consumer.receive() for _ in range(20)][-1])
                await trio.sleep(0.1)
                for stream in broker.simulation.network.streams():
                    broker.simulation.network.reset(stream)
                second = await client.subscribe("orders", "shipping", initial_position="earliest")
                for each, first in ((second, 0), (consumer, 20)):
                    assert {(await each.receive()).offset for _ in range(first, BATCHES)} == set(range(first, BATCHES))

    simulate_broker(scenario)


def test_a_partition_found_during_a_seek_is_consumed_and_the_seek_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Leaders.ask

    async def scenario(broker: EmbeddedBroker) -> None:
        kafka = await broker.connect()
        await kafka.create_topic("orders", partitions=1)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")

            async def ask_and_grow(leaders: Leaders, *args: Any) -> Any:
                consumer.grow(2, "earliest")
                return await ask(leaders, *args)

            more = CreatePartitionsTopic(name="orders", count=2, assignments=None)
            await kafka.ask(CreatePartitionsRequest(topics=[more]), 3)
            monkeypatch.setattr(Leaders, "ask", ask_and_grow)
            assert await consumer.seek("earliest") == {0: 0, 1: 0}
            batch = build_batch([Record(value=b"1")], base_timestamp=1)
            assert (await kafka.produce("orders", batch, 1)).error_code == 0
            with trio.fail_after(10):
                assert (await consumer.receive()).partition == 1

    simulate_broker(scenario)
