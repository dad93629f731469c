"""The bookies of plans: one connection to each, kept from plan to plan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import trio

from gnomon.bookie.ledgers.catalog import Bookies, ListedBookie, ListedBookies
from gnomon.log.plans.read_plan import PlannedBookie
from gnomon.runtime.background import background
from gnomon.runtime.world import World


class PlannedBookies:
    """The bookies of all plans of a process; `planned_bookies` makes it."""

    def __init__(self, world: World, nursery: trio.Nursery, warn: Callable[[str], None]) -> None:
        """Knows no bookie; arguments as for `ListedBookies`."""
        self._world, self._nursery, self._warn = world, nursery, warn
        self._clusters: dict[str, ListedBookies] = {}

    def of(self, cluster: str, bookies: Iterable[PlannedBookie]) -> Bookies:
        """The bookies of a plan; a newer plan may have other addresses for them.

        Args:
            cluster: the id of their cluster.
        """
        if cluster not in self._clusters:
            self._clusters[cluster] = ListedBookies(self._world, cluster, self._nursery, self._warn)
        self._clusters[cluster].add(ListedBookie(*each) for each in bookies)
        return self._clusters[cluster]


@asynccontextmanager
async def planned_bookies(world: World, warn: Callable[[str], None]) -> AsyncIterator[PlannedBookies]:
    """The bookies of plans, while the block lasts.

    Args:
        warn: is called with a text when a bookie does not answer or has a damaged copy, so that another copy is read.
    """
    async with background() as nursery:
        yield PlannedBookies(world, nursery, warn)
