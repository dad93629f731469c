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
            bookie, broker = simulation.machine("bookie-1"), simulation.machine("broker-1")
            for machine in (bookie, broker, simulation.machine("client")):
                machine.start(starting)
            await Storm(simulation, [bookie, broker]).rage(5.0)
            assert roll.machines == {"bookie-1", "broker-1", METADATA}
            assert roll.brokers_known == ["broker-1"]

    simulate(1, scenario)
