"""Positions and consumers that are out of reach for a while, on one simulated broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from native_calls import FLUSHED_SECONDS, native, orders, read, rpc, values

from gnomon.bookie.errors import NotEnoughBookies
from gnomon.broker.native.client import connect
from gnomon.broker.native.errors import RecordsMissed, Unavailable
from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.reading import LogPositions
from gnomon.broker.subscriptions.record import SubscriberRecord
from gnomon.broker.subscriptions.store import subscriptions_prefix
from gnomon.testing.embedded_broker import HOST, NATIVE_PORT, EmbeddedBroker, simulate_broker


async def stored_entries(broker: EmbeddedBroker) -> dict[str, int]:
    """The entry at which each subscription of `orders` is stored."""
    node = broker.serving.broker
    prefix = subscriptions_prefix(node.find_topic("orders").id, 0)
    found = await node.metadata.range(prefix)
    return {
        item.key.removeprefix(prefix): SubscriberRecord.decode(item.value).position.dlsn.entry for item in found.items
    }


@contextmanager
def out_of_reach(method: str, where: int) -> Iterator[None]:
    """Bookies are away while `LogPositions` is asked by a method about an offset, or the entry of an id."""
    ask = getattr(LogPositions, method)

    async def away(positions: LogPositions, asked: Offset | Dlsn) -> Offset | Dlsn:
        if (asked.entry if isinstance(asked, Dlsn) else asked) == where:
            raise NotEnoughBookies("bookies are away")
        return await ask(positions, asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogPositions, method, away)
        yield


def test_a_position_whose_records_are_out_of_reach_keeps_no_other_from_being_stored() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            slow = await client.subscribe("orders", "slow", initial_position="earliest")
            quick = await client.subscribe("orders", "quick", initial_position="earliest")
            with out_of_reach("dlsn_of", 2):
                await values(slow, 2)
                await read(quick, 10)
                assert await stored_entries(broker) == {"quick": 10, "slow": 0}
            await broker.simulation.clock.sleep(2 * FLUSHED_SECONDS)
            assert await stored_entries(broker) == {"quick": 10, "slow": 2}

    simulate_broker(scenario)


def test_a_position_that_cannot_be_read_keeps_nobody_else_from_consuming_and_goes_on_later() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with native(broker) as client:
            slow = await client.subscribe("orders", "slow", initial_position="earliest")
            quick = await client.subscribe("orders", "quick", initial_position="earliest")
            await read(slow, 2)
            await read(quick, 10)
            with out_of_reach("offset_of", 2):
                await broker.restart()
                await orders(broker, 1, first=10)
                with trio.fail_after(60):
                    assert await values(quick, 1) == [10]
                async with rpc(broker) as peer:
                    for call in (["stats", "orders", 0, ["slow"]], ["unsubscribe", "orders", 0, "slow", "me", True]):
                        with pytest.raises(Unavailable, match="bookies are away"):
                            await peer.call(*call)
            with trio.fail_after(60):
                assert await values(slow, 9) == list(range(2, 11))

    simulate_broker(scenario)


def test_a_consumer_that_is_out_of_reach_is_told_what_it_has_missed_once_it_is_back() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 10)
        async with connect(f"{HOST}:{NATIVE_PORT}", world=broker.client_world) as client:
            consumer = await client.subscribe("orders", "one", initial_position="earliest", queue_records=1)
            assert await read(consumer, 2) == [0, 1]
            network = broker.simulation.network
            network.block(HOST, "clients")
            network.block("clients", HOST)
            node = broker.serving.broker
            await node.partition_of(node.find_topic("orders").id.bytes, 0).delete_before(Offset(8))
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
