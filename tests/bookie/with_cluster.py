"""A cluster of bookies on the simulated network, for tests with one client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster


def with_cluster(
    work: Callable[[LedgerClient, LedgerCluster], Awaitable[None]], *, seed: int = 1, bookies: int = 4, **settings: Any
) -> None:
    """Runs `work` on the machine `client` of a cluster of `bookies` bookies; `settings` go to `LedgerCluster`."""

    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies, **settings)
        await cluster.start()
        with trio.fail_after(600):
            await cluster.run_client("client", lambda client: work(client, cluster))

    simulate(seed, scenario)
