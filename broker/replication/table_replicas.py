"""Opens the replicas of tables: at each broker that leads a shadow of a table, without a reader.

1. A replica belongs to a partition of the source. It is opened once this broker leads that partition of some shadow,
   and not that of the source, whose leader has the table itself.
2. A replica ends when this broker leads neither any more. If it begins to lead the source, the replica stays until the
   table takes it over.
3. A change costs a look at the tables with shadows, and nothing where there are none.
"""

from __future__ import annotations

import uuid
from typing import NoReturn

from gnomon.broker.configs.topic_configs import is_table
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.placement.placement import Placement
from gnomon.broker.tables.hosted_tables import HostedTables
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Clock

BEGIN_SECONDS = 0.05
"""Delay after a change: changes often come together."""


class TableReplicas:
    """Opens and ends replicas after every change while `run` runs."""

    def __init__(
        self, topics: Topics, placement: Placement, partitions: PartitionsInUse, tables: HostedTables, clock: Clock
    ) -> None:
        self._topics = topics
        self._placement = placement
        self._partitions = partitions
        self._tables = tables
        self._clock = clock
        self._changed = Signal()
        topics.watch(moved=self._changed.set)
        placement.watch(self._changed.set)

    async def run(self) -> NoReturn:
        """Runs until it is cancelled."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(BEGIN_SECONDS)
            self._changed.clear()
            self._look()

    def _look(self) -> None:
        wanted: set[tuple[uuid.UUID, int]] = set()
        image = self._topics.image
        for source in filter(None, map(image.get_by_id, image.shadowed())):
            if is_table(source.configs):
                for index in range(source.partitions):
                    if self._keeps(source, index):
                        wanted.add((source.id, index))
        self._tables.keep_replicas(wanted)

    def _keeps(self, source: Topic, index: int) -> bool:
        """Whether a replica stays; opens it if there is none and one is needed."""
        if self._placement.leads(source, index):
            return True
        for shadow in self._topics.image.shadows_of(source):
            if self._placement.leads(shadow, index):
                self._tables.add_replica(source, index, self._partitions.use_shadow(shadow, index))
                return True
        return False
