"""Errors of a native client whose broker cannot be reached: documented, exported, and raised within seconds."""

from __future__ import annotations

import re

import pytest
import trio
from native_calls import native, orders, values

import gnomon
from gnomon.client.addresses import Address
from gnomon.client.leaders import LEADER_SECONDS, REACH_SECONDS, TRY_SECONDS, Leaders
from gnomon.runtime.rpc.client import CONNECT_SECONDS, SILENCE_SECONDS
from gnomon.testing.storms.kafka.embedded_broker import HOST, PORT, EmbeddedBroker, simulate_broker

SECONDS_MAX = max(CONNECT_SECONDS, SILENCE_SECONDS) + REACH_SECONDS
SILENT_PORT = 4000


class Silent:
    """A program that accepts connections, reads, and writes nothing."""

    def __init__(self, _: object) -> None:
        self._buffer = memoryview(bytearray(1 << 10))

    def receive_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        pass

    def drained(self) -> None:
        pass

    def closed(self) -> None:
        pass


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (f"{HOST}:1", "connection refused: is it running there"),
        ("elsewhere:6650", "cannot connect to elsewhere:6650: no answer within 5 s"),
        (f"{HOST}:{PORT}", "the connection ended before the first answer: is this the port of another service"),
        (f"clients:{SILENT_PORT}", "nothing was received for 6 s"),
        (f"{HOST}:1,{HOST}:{PORT}", f"broker at {HOST}:1: .*; broker at {HOST}:{PORT}: "),
    ],
)
def test_a_wrong_address_is_reported_with_its_reason_within_seconds(address: str, reason: str) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        world = broker.client_world
        await world.network.listen("", SILENT_PORT, Silent)
        began = world.clock.monotonic()
        with pytest.raises(gnomon.BrokerUnreachable) as caught:
            async with gnomon.connect(address, world=world) as client:
                await client.subscribe("orders", "billing")
        assert world.clock.monotonic() - began < SECONDS_MAX
        assert str(caught.value).startswith("no broker answers: ")
        assert re.search(reason, str(caught.value)), str(caught.value)

    simulate_broker(scenario)


def test_a_broker_that_leaves_during_a_call_is_reported_within_seconds_and_its_consumers_go_on() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 3)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            assert await values(consumer, 1) == [0]
            async with trio.open_nursery() as nursery:

                async def leave() -> None:
                    await trio.lowlevel.checkpoint()
                    broker.machine.kill()

                nursery.start_soon(leave)
                began = broker.client_world.clock.monotonic()
                with pytest.raises(gnomon.BrokerUnreachable):
                    await consumer.backlog()
                assert broker.client_world.clock.monotonic() - began < SECONDS_MAX
                with pytest.raises(gnomon.BrokerUnreachable):
                    await client.subscribe("orders", "shipping")
            await broker.start()
            assert await consumer.seek("earliest") == {0: 0}
            assert await values(consumer, 3) == [0, 1, 2]

    simulate_broker(scenario)


def test_a_broker_that_is_back_within_seconds_is_not_reported() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        broker.machine.kill()

        async def come_back() -> None:
            await trio.sleep(REACH_SECONDS / 2)
            await broker.start()

        async with trio.open_nursery() as nursery, native(broker) as client:
            nursery.start_soon(come_back)
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            assert await values(consumer, 1) == [0]

    simulate_broker(scenario)


@pytest.fixture
def leader_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers name a leader at an address that no client can reach."""

    async def look_up(*_: object) -> list[Address | None]:
        return [("elsewhere", 1)]

    monkeypatch.setattr(Leaders, "look_up", look_up)


@pytest.mark.usefixtures("leader_elsewhere")
@pytest.mark.parametrize("call", ["subscribe", "describe"])
def test_a_leader_whose_advertised_address_cannot_be_reached_is_reported_with_the_settings(call: str) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        clock = broker.client_world.clock
        async with native(broker) as client:
            calls = {"subscribe": client.subscribe, "describe": client.subscriptions.describe}
            for _ in range(2):
                began = clock.monotonic()
                with pytest.raises(gnomon.BrokerUnreachable) as caught:
                    await calls[call]("orders", "billing")
                assert LEADER_SECONDS <= clock.monotonic() - began < LEADER_SECONDS + 2 * CONNECT_SECONDS
                assert "cannot connect to elsewhere:1" in str(caught.value)
                assert "broker.native_advertised_host and broker.native_advertised_port" in str(caught.value)

    simulate_broker(scenario)


def test_a_leader_that_answers_again_in_time_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        clock = broker.client_world.clock
        look_up, back_at = Leaders.look_up, clock.monotonic() + LEADER_SECONDS * 0.7

        async def moved(leaders: Leaders, topic: str) -> list[Address | None]:
            return await look_up(leaders, topic) if clock.monotonic() > back_at else [("elsewhere", 1)]

        monkeypatch.setattr(Leaders, "look_up", moved)
        async with native(broker) as client:
            consumer = await client.subscribe("orders", "billing", initial_position="earliest")
            assert await values(consumer, 1) == [0]

    simulate_broker(scenario)


def test_a_subscription_without_a_leader_is_reported_when_all_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(*_: object) -> list[Address | None]:
        return [None]

    monkeypatch.setattr(Leaders, "look_up", look_up)

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        began = broker.client_world.clock.monotonic()
        with pytest.raises(gnomon.Unavailable, match="the last reason: the partition has no leader"):
            async with native(broker) as client:
                await client.subscribe("orders", "billing")
        assert TRY_SECONDS <= broker.client_world.clock.monotonic() - began < TRY_SECONDS + CONNECT_SECONDS

    simulate_broker(scenario)
