"""A whole node: what it says when it starts, and that it ends when it is asked to."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from gnomon.broker.standalone import Serving, run_standalone
from gnomon.runtime.settings import BrokerSettings, Settings
from gnomon.testing.simulated_world import SimulatedWorld
from gnomon.testing.simulation import Simulation, simulate


@pytest.mark.parametrize(
    ("broker", "warned"),
    [
        (BrokerSettings(kafka_host="0.0.0.0"), True),
        (BrokerSettings(kafka_host="::"), True),
        (BrokerSettings(kafka_host="0.0.0.0", advertised_host="broker.example"), False),
        (BrokerSettings(kafka_host="127.0.0.1"), False),
    ],
)
def test_an_address_that_clients_elsewhere_cannot_use_is_warned_of(broker: BrokerSettings, warned: bool) -> None:
    async def scenario(simulation: Simulation) -> None:
        stop, ended = trio.Event(), trio.Event()
        served: list[Serving] = []

        async def node(world: SimulatedWorld) -> None:
            settings = Settings(data_dir=Path("/data"), broker=broker)
            await run_standalone(world, settings, world.logger, ready=served.append, stop=stop)
            ended.set()

        simulation.machine("node").start(node)
        while not served:
            await simulation.sleep(0.1)
        assert served[0].bookie_problem() is None
        await simulation.sleep(0.1)
        assert served[0].image_problem() is None
        assert simulation.coverage.counts["log/advertised_host_missing"] == int(warned)
        stop.set()
        with trio.fail_after(10):
            await ended.wait()

    simulate(1, scenario)
