from __future__ import annotations

import uuid
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from native_calls import orders, rpc

from gnomon.broker import node
from gnomon.broker.native.hosts import Hosts
from gnomon.client.errors import NoSuchTopic
from gnomon.runtime.settings.settings import SubscriptionsSettings
from gnomon.runtime.timers import Timers
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker


@pytest.mark.parametrize(("took_seconds", "pause_seconds"), [(0.1, 1.0), (1.0, 4.0), (60.0, 10.0)])
def test_positions_are_stored_less_often_if_that_is_slow(took_seconds: float, pause_seconds: float) -> None:
    began: list[float] = []

    async def scenario(simulation: Simulation) -> None:
        async def flush(positions_max: int) -> None:
            began.append(simulation.clock.monotonic())
            await simulation.clock.sleep(took_seconds)

        host: Any = SimpleNamespace(flush=flush)
        unused: Any = None
        settings, timers = SubscriptionsSettings(flush_seconds=1.0), Timers(simulation.clock)
        parts = (unused,) * 4
        world: Any = simulation
        async with trio.open_nursery() as nursery:
            hosts = Hosts(*parts, settings, lambda topic, index: host.store, unused, world, timers, unused)
            hosts._hosts[uuid.UUID(int=1), 0] = host
            await nursery.start(hosts.run)
            await simulation.clock.sleep(1000.0)
            nursery.cancel_scope.cancel()

    simulate(1, scenario)
    assert len(began) >= 10
    assert [after - before for before, after in pairwise(began)] == pytest.approx(
        [took_seconds + pause_seconds] * (len(began) - 1)
    )


def test_no_state_is_kept_for_partitions_that_were_only_asked_for() -> None:
    made: list[Hosts] = []

    async def scenario(broker: EmbeddedBroker) -> None:
        await orders(broker, 1)
        async with rpc(broker) as peer, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(peer.call, "stats", "orders", 0, [])
            for index in range(1, 20):
                with pytest.raises(NoSuchTopic):
                    await peer.call("stats", "orders", index, [])
        (hosts,) = made
        assert hosts._opening == {}
        assert [key[1] for key, _ in hosts.all()] == [0]

    class Noted(Hosts):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "Hosts", Noted)
        simulate_broker(scenario)
