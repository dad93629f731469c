"""An invalid argument fails its own call and affects no other call."""

from __future__ import annotations

import math
from typing import Any

import pytest
from native_calls import native, orders, values

from gnomon.client.ack_sender import AckSender
from gnomon.client.errors import InvalidCall
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker

SENSELESS_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("type", {"type": "fastest"}),
    ("initial_position", {"initial_position": 0}),
    ("queue_records", {"queue_records": 0}),
    ("queue_records", {"queue_records": 2.5}),
    ("queue_records", {"queue_records": 2**31}),
    ("ack_seconds", {"ack_seconds": -1}),
    ("ack_seconds", {"ack_seconds": 0.01}),
    ("ack_seconds", {"ack_seconds": math.inf}),
    ("ack_seconds", {"ack_seconds": math.nan}),
    ("ack_seconds", {"ack_seconds": "30"}),
]


@pytest.mark.parametrize(("named", "options"), SENSELESS_OPTIONS)
def test_an_invalid_option_is_refused_with_its_name(named: str, options: dict[str, Any]) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        async with native(broker) as client:
            with pytest.raises(InvalidCall, match=named):
                await client.subscribe("orders", "billing", **options)
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            assert await values(consumer, 1) == [0]

    simulate_broker(scenario)


@pytest.mark.parametrize("name", [None, "", "x" * 1000, object()])
def test_an_invalid_name_fails_no_other_subscribe_at_the_same_time(name: Any) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        async with native(broker) as client:
            with pytest.raises(InvalidCall, match="subscription"):
                await client.subscribe_many("orders", ["good", name])
            consumer = await client.subscribe("orders", "good", initial_position="earliest")
            assert await values(consumer, 1) == [0]

    simulate_broker(scenario)


def test_a_consumer_accepts_only_its_own_messages_and_partitions() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client:
            one = await client.subscribe("orders", "one", initial_position="earliest")
            two = await client.subscribe("orders", "two", initial_position="earliest")
            of_one = await one.receive()
            for wrong in (None, 7, of_one):
                for answer in (two.ack, two.ack_up_to, two.nack):
                    with pytest.raises(InvalidCall, match="subscription 'two'"):
                        answer(wrong)
            with pytest.raises(InvalidCall, match="subscription 'two'"):
                await two.seek(of_one)
            for partition in (-1, 1):
                with pytest.raises(InvalidCall, match="partition"):
                    await two.seek_to_offset(partition, 0)
                with pytest.raises(InvalidCall, match="partition"):
                    await two.seek_to_id(partition, of_one.id)
            for delay in (-1.0, math.inf, math.nan, 1e12):
                with pytest.raises(InvalidCall, match="delay_seconds"):
                    one.nack(of_one, delay)
            assert await values(two, 3) == [0, 1, 2]
            assert await one.backlog() == 3

    simulate_broker(scenario)


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_a_consumer_of_a_shared_subscription_cannot_acknowledge_up_to_a_record(kind: Any) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", type=kind, initial_position="earliest")
            messages = [await consumer.receive() for _ in range(3)]
            with pytest.raises(InvalidCall, match="one by one"):
                consumer.ack_up_to(messages[2])
            AckSender(broker.simulation.clock).ack_up_to(consumer.parts[0], 3)  # as another client may send it
            assert await consumer.backlog() == 3

    simulate_broker(scenario)
