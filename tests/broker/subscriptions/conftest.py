"""Stores of positions on real metadata and a real bookie in a simulated machine, killed between two acts."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from gnomon.broker.stores import open_stores
from gnomon.runtime.settings.settings import Settings
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests: test folders are no packages

from store_house import StoreHouse

ACT_SECONDS = 300

StoreAct = Callable[[StoreHouse], Awaitable[None]]


def _on_one_disk(*acts: StoreAct) -> None:
    async def scenario(simulation: Simulation) -> None:
        machine = simulation.machine("node")
        for act in acts:
            over = trio.Event()

            async def node(world: SimulatedWorld, act: StoreAct = act, over: trio.Event = over) -> None:
                async with open_stores(world, Settings(data_dir=Path("/data"))) as stores:
                    with trio.fail_after(ACT_SECONDS):
                        await act(StoreHouse(stores))
                    over.set()
                    await trio.sleep_forever()

            machine.start(node)
            await over.wait()
            machine.kill()

    simulate(1, scenario)


@pytest.fixture
def on_one_disk() -> Callable[..., None]:
    """Plays acts one after the other; after each the node is killed."""
    return _on_one_disk
