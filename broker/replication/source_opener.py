"""Opens the partitions of topics with shadows (read-only topics with the same records) before a client uses them.

1. The last entries that a dead owner confirmed are known to be confirmed only after the next claim (decision 17). So a
   broker that begins to lead a partition of a topic with shadows opens the partition by itself, also after its own
   start.
2. A topic with shadows costs at most one metadata read for each change of leaders, and a topic without shadows costs
   nothing. A partition that was never written is not opened. At most OPENING_MAX are opened at the same time.
3. A failed opening is tried again as long as this broker leads the partition.
"""

from __future__ import annotations

import uuid
from typing import NoReturn

import trio

from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.placement.placement import Placement
from gnomon.broker.storage import Storage
from gnomon.broker.topics.topics import Topics
from gnomon.log.chains import written_partitions
from gnomon.log.topic import Topic
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.signal import Signal
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock

BEGIN_SECONDS = 0.05
"""Delay after a change: a broker that starts serves clients first, and changes often come together."""
OPENING_MAX = 8
RETRY_SECONDS = 1.0


class SourceOpener:
    """Opens sources after every change of leaders while `run` runs."""

    def __init__(
        self,
        topics: Topics,
        placement: Placement,
        partitions: PartitionsInUse,
        storage: Storage,
        clock: Clock,
        timers: Timers,
        log: Logger,
    ) -> None:
        self._topics = topics
        self._placement = placement
        self._partitions = partitions
        self._storage = storage
        self._clock = clock
        self._timers = timers
        self._log = log
        self._seen: set[uuid.UUID] = set()
        """The topics with shadows that need no check until leaders change."""
        self._due: dict[tuple[uuid.UUID, int], None] = {}
        self._opening = 0
        self._changed = Signal()
        topics.watch(moved=self.topics_changed)
        placement.watch(self.leaders_changed)

    def leaders_changed(self) -> None:
        """This broker may lead a partition for the first time, or again after another broker led it."""
        self._seen.clear()
        self.topics_changed()

    def topics_changed(self) -> None:
        """A topic may have its first shadow."""
        self._changed.set()

    async def run(self) -> NoReturn:
        """Runs until it is cancelled."""
        async with trio.open_nursery() as opening:
            while True:
                await self._changed.wait()
                await self._clock.sleep(BEGIN_SECONDS)
                self._changed.clear()
                image = self._topics.image
                shadowed = image.shadowed()
                self._seen.intersection_update(shadowed)
                for topic in filter(None, map(image.get_by_id, shadowed)):
                    if topic.id not in self._seen:
                        self._seen.add(topic.id)
                        await self._check(topic, opening)

    async def _check(self, topic: Topic, opening: trio.Nursery) -> None:
        if not any(self._led_and_closed(topic, index) for index in range(topic.partitions)):
            return
        try:
            written = await written_partitions(self._storage.metadata, topic.id)
        except MetadataError as error:
            self._log.warning("source_not_opened", topic=topic.name, reason=str(error), next="it is tried again")
            self._try_again(topic)
            return
        self._due.update(((topic.id, index), None) for index in written)
        for _ in range(min(OPENING_MAX - self._opening, len(self._due))):
            self._opening += 1
            opening.start_soon(self._open_due)

    async def _open_due(self) -> None:
        while self._due:
            topic_id, index = next(iter(self._due))
            del self._due[topic_id, index]
            topic = self._topics.image.get_by_id(topic_id)
            if topic is not None and self._led_and_closed(topic, index):
                log = await self._partitions.use(topic, index).opened()
                if log is None:  # the partition has logged the reason
                    self._try_again(topic)
        self._opening -= 1

    def _led_and_closed(self, topic: Topic, index: int) -> bool:
        if not self._placement.leads(topic, index):
            return False
        partition = self._partitions.get(topic.id, index)
        return partition is None or partition.log is None

    def _try_again(self, topic: Topic) -> None:
        self._seen.discard(topic.id)
        self._timers.call_at(self._clock.monotonic() + RETRY_SECONDS, self.topics_changed)
