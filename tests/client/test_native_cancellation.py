"""Cancelled calls of the native client: their effects are completed or undone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import Any, get_args

import pytest
import trio
from native_calls import native, orders, values

from gnomon.broker.native.server import NativeServer
from gnomon.broker.subscriptions.positions import stores
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.store import SubscriptionsStore
from gnomon.client.client import NativeClient, connect
from gnomon.client.consumer import Consumer
from gnomon.client.consumer_options import Type
from gnomon.runtime.settings.settings import SubscriptionsSettings
from gnomon.testing.storms.kafka.embedded_broker import HOST, NATIVE_PORT, EmbeddedBroker, simulate_broker
from gnomon.testing.storms.patches import Patches
from gnomon.testing.storms.subscriptions.cancelled_calls import CALLS, PROMPT_SECONDS, CancelledCalls

RECORDS = 3
SETTLED_SECONDS = 0.2
"""After this time started work is finished. Positions are stored later, every second."""
COMMIT_SECONDS = 0.005
"""Longer than the delay of a message, so that a cancellation reaches the broker during a commit."""


@pytest.fixture
def servers() -> Iterator[list[NativeServer]]:
    """The native servers of the brokers that are started."""
    found: list[NativeServer] = []

    def made(before: Any) -> Any:
        def make(server: NativeServer, *given: Any) -> None:
            before(server, *given)
            found.append(server)

        return make

    with ExitStack() as stack:
        Patches(stack)(NativeServer, "__init__", made)
        yield found


def connected(broker: EmbeddedBroker, name: str) -> Any:
    return connect(f"{HOST}:{NATIVE_PORT}", world=broker.client_world, name=name)


async def subscribe(client: NativeClient, kind: Type = "exclusive") -> Consumer:
    with trio.fail_after(PROMPT_SECONDS):
        return await client.subscribe("orders", "billing", type=kind, initial_position="earliest")


def test_a_consumer_closed_in_a_cancelled_task_frees_its_subscription() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, RECORDS)
        async with native(broker) as client, connected(broker, "other") as other:
            with trio.CancelScope() as scope:
                consumer = await subscribe(client)
                try:
                    scope.cancel()
                    await trio.lowlevel.checkpoint()
                finally:
                    await consumer.close()
            assert scope.cancelled_caught
            await trio.sleep(0.1)
            assert await values(await subscribe(other), RECORDS) == list(range(RECORDS))

    simulate_broker(scenario)


@pytest.fixture(params=["metadata", "segments"])
def positions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Selects the store of positions: metadata or segments."""
    open_store = stores.subscriptions_store

    def opened(settings: SubscriptionsSettings, *where: Any, **how: Any) -> SubscriptionsStore:
        in_segments = request.param == "segments"
        return open_store(replace(settings, log_segment_based_subscriptions_store_enabled=in_segments), *where, **how)

    monkeypatch.setattr(stores, "subscriptions_store", opened)


@pytest.mark.usefixtures("positions")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_cancelled_at_any_step_leaves_nothing_half_done(call: str, servers: list[NativeServer]) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, RECORDS)
        broker.machine.disk.conditions.sync_seconds_min = COMMIT_SECONDS
        written = count(RECORDS)

        async def produce() -> None:
            await orders(broker, 1, first=next(written))

        async def at_rest() -> None:
            await trio.sleep(SETTLED_SECONDS)
            found = await broker.serving.broker.storage.metadata.range("subscriptions/")
            stored = {item.key.rpartition("/")[2]: SubscriberRecord.decode(item.value) for item in found.items}
            for _, host in servers[0].hosts.all():
                subscriptions = host.dispatcher.subscriptions
                assert sorted(subscriptions) == sorted(stored)
                for name, subscription in subscriptions.items():
                    if subscription not in host.dispatcher.dirty and stored[name].segment_id is None:
                        assert stored[name].position.dlsn == await host.positions.dlsn_of(
                            subscription.cursor.mark_delete
                        )

        async with native(broker) as client, connected(broker, "other") as other:
            calls = CancelledCalls("orders", client, other, produce, at_rest)
            kinds = get_args(Type)
            for step in count():
                if not await calls.judge(call, kinds[step % len(kinds)], step):
                    break
            assert step > 0, "the call was never cut off"
            await at_rest()
            connections = list(servers[0].connections)
            assert [[*each.consumers, *each.awaited] for each in connections] == [[], []]
            assert [list(host.dispatcher.subscriptions) for _, host in servers[0].hosts.all()] == [["end"]]

    simulate_broker(scenario)
