"""The bookies of plans: one connection to each, kept from plan to plan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio

from gnomon.bookie.ledgers.catalog import Bookies, ListedBookie, ListedBookies
from gnomon.log.plans.read_plan import PlannedBookie
from gnomon.runtime.background import background
from gnomon.runtime.world import World


class PlannedBookies:
    """The bookies of all plans of a process; `planned_bookies` makes it."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        """Knows no bookie; `nursery` runs the connections."""
        self._world, self._nursery = world, nursery
        self._clusters: dict[str, ListedBookies] = {}

    def of(self, cluster: str, bookies: Iterable[PlannedBookie]) -> Bookies:
        """The bookies of a plan; a newer plan may have other addresses for them.

        Args:
            cluster: the id of their cluster.
        """
        if cluster not in self._clusters:
            self._clusters[cluster] = ListedBookies(self._world, cluster, self._nursery)
        self._clusters[cluster].add(ListedBookie(*each) for each in bookies)
        return self._clusters[cluster]


@asynccontextmanager
async def planned_bookies(world: World) -> AsyncIterator[PlannedBookies]:
    """The bookies of plans, while the block lasts."""
    async with background() as nursery:
        yield PlannedBookies(world, nursery)
