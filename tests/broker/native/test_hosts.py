from __future__ import annotations

import uuid
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from gnomon.broker.native.hosts import Hosts
from gnomon.runtime.settings import SubscriptionsSettings
from gnomon.testing.simulation import Simulation, simulate


@pytest.mark.parametrize(("took_seconds", "pause_seconds"), [(0.1, 1.0), (1.0, 4.0), (60.0, 10.0)])
def test_positions_are_stored_less_often_where_that_is_slow(took_seconds: float, pause_seconds: float) -> None:
    began: list[float] = []

    async def scenario(simulation: Simulation) -> None:
        async def flush(positions_max: int) -> None:
            began.append(simulation.clock.monotonic())
            await simulation.clock.sleep(took_seconds)

        broker: Any = SimpleNamespace(world=simulation)
        host: Any = SimpleNamespace(flush=flush)
        async with trio.open_nursery() as nursery:
            hosts = Hosts(broker, nursery, SubscriptionsSettings(flush_seconds=1.0), lambda topic, index: host.store)
            hosts._hosts[uuid.UUID(int=1), 0] = host
            nursery.start_soon(hosts.flush_regularly)
            await simulation.clock.sleep(1000.0)
            nursery.cancel_scope.cancel()

    simulate(1, scenario)
    assert len(began) >= 10
    assert [after - before for before, after in pairwise(began)] == pytest.approx(
        [took_seconds + pause_seconds] * (len(began) - 1)
    )
