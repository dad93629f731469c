"""Positions and consumers that are out of reach for a while, on one simulated broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from native_calls import FLUSHED_SECONDS, native, orders, read, values

from gnomon.bookie.errors import NotEnoughBookies
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.client.client import connect
from gnomon.client.errors import RecordsMissed
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import Offset
from gnomon.log.log_positions import LogPositions
from gnomon.log.subscription_keys import subscriptions_prefix
from gnomon.testing.storms.kafka.embedded_broker import HOST, NATIVE_PORT, EmbeddedBroker, simulate_broker


async def stored_entries(broker: EmbeddedBroker) -> dict[str, int]:
    """The entry at which each subscription of `orders` is stored."""
    node = broker.serving.broker
    prefix = subscriptions_prefix(node.topics.find("orders").id, 0)
    found = await node.storage.metadata.range(prefix)
    return {
        item.key.removeprefix(prefix): SubscriberRecord.decode(item.value).position.dlsn.entry for item in found.items
    }


@contextmanager
def out_of_reach(where: int) -> Iterator[None]:
    """Bookies are away while `LogPositions` is asked for the DLSN of an offset."""
    ask = LogPositions.dlsn_of

    async def away(positions: LogPositions, asked: Offset) -> Dlsn:
        if asked == where:
            raise NotEnoughBookies("bookies are away")
        return await ask(positions, asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogPositions, "dlsn_of", away)
        yield


def test_a_position_whose_records_are_out_of_reach_does_not_prevent_the_storing_of_others() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            slow = await client.subscribe("orders", "slow", initial_position="earliest")
            quick = await client.subscribe("orders", "quick", initial_position="earliest")
            with out_of_reach(2):
                await values(slow, 2)
                await read(quick, 10)
                assert await stored_entries(broker) == {"quick": 10, "slow": 0}
            await broker.simulation.clock.sleep(2 * FLUSHED_SECONDS)
            assert await stored_entries(broker) == {"quick": 10, "slow": 2}

    simulate_broker(scenario)


def test_positions_are_loaded_without_a_read_of_the_log() -> None:
    async def away(positions: LogPositions, asked: object) -> Offset:
        raise NotEnoughBookies("bookies are away")

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            slow = await client.subscribe("orders", "slow", initial_position="earliest")
            await read(slow, 2)
            with pytest.MonkeyPatch.context() as patch:
                for search in ("offset_of", "dlsn_of"):
                    patch.setattr(LogPositions, search, away)
                await broker.restart()
                with trio.fail_after(60):
                    assert await values(slow, 8) == list(range(2, 10))

    simulate_broker(scenario)


def test_a_subscription_out_of_reach_is_notified_of_missed_records_when_it_is_back() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with connect(f"{HOST}:{NATIVE_PORT}", world=broker.client_world) as client:
            consumer = await client.subscribe("orders", "one", initial_position="earliest", queue_records=1)
            assert await read(consumer, 2) == [0, 1]
            network = broker.simulation.network
            network.block(HOST, "clients")
            network.block("clients", HOST)
            node = broker.serving.broker
            await node.routes.to_read(node.topics.find("orders").id.bytes, 0).delete_before(Offset(8))
            await broker.simulation.clock.sleep(20)
            for pair in network.streams():
                network.reset(pair)
            network.heal()
            found: list[int | tuple[int, int]] = []
            while 9 not in found:
                try:
                    found += await values(consumer, 1)
                except RecordsMissed as error:
                    found.append((error.first, error.end))
            assert found[-3:] == [(2, 8), 8, 9]
            await broker.simulation.clock.sleep(FLUSHED_SECONDS)
            await broker.restart()
            await orders(broker, 1, first=10)
            assert await values(consumer, 1) == [10]

    simulate_broker(scenario)
