"""The roll of the nodes of a storm."""

from __future__ import annotations

from gnomon.testing.simulation.faults import Storm
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA
from gnomon.testing.storms.rest.roll import roll_call


async def starting(world: SimulatedWorld) -> None:
    """A node that never comes to serve."""
    await world.clock.sleep(1_000)


def test_a_node_that_has_never_served_is_on_the_roll_and_a_client_is_not() -> None:
    async def scenario(simulation: Simulation) -> None:
        with roll_call(simulation) as roll:
            bookie, client = simulation.machine("bookie-1"), simulation.machine("client")
            bookie.start(starting)
            client.start(starting)
            await Storm(simulation, [bookie]).rage(5.0)
            assert roll.machines == {"bookie-1", METADATA}

    simulate(1, scenario)
