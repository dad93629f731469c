"""Opens the partitions that shadows elsewhere show, without waiting for a client to use them.

1. What a dead owner had confirmed last is known as confirmed to nobody before the next claim (decision 17). So a broker
   that begins to lead a partition of a topic with shadows opens it by itself, after its own start too.
2. One metadata read for each topic with shadows and change of leaders, and nothing for a topic without; a partition
   that was never written is left alone. At most OPENING_MAX are opened at once.
3. What could not be opened is tried again, as long as this broker leads it.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NoReturn

import trio

from gnomon.broker.partition.chain import written_partitions
from gnomon.broker.topics import Topic
from gnomon.metadata.client import MetadataError

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

BEGIN_SECONDS = 0.05
"""How long after a change it is looked what to open: one that starts serves first, and changes often come together."""
OPENING_MAX = 8
RETRY_SECONDS = 1.0


class SourceOpener:
    """Looks after every change of leaders; `run` has to run."""

    def __init__(self, broker: Broker, nursery: trio.Nursery) -> None:
        self._broker = broker
        self._nursery = nursery
        self._seen: set[uuid.UUID] = set()
        """The topics with shadows that need no look before leaders change."""
        self._due: dict[tuple[uuid.UUID, int], None] = {}
        self._opening = 0
        self._stirred = trio.Event()

    def leaders_changed(self) -> None:
        """This broker may lead what it did not lead before, even if only another one did in between."""
        self._seen.clear()
        self.stir()

    def stir(self) -> None:
        """A topic may have become one with shadows."""
        self._stirred.set()

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await self._stirred.wait()
            await self._broker.world.clock.sleep(BEGIN_SECONDS)
            self._stirred = trio.Event()
            image = self._broker.image
            shadowed = image.shadowed()
            self._seen.intersection_update(shadowed)
            for topic in filter(None, map(image.get_by_id, shadowed)):
                if topic.id not in self._seen:
                    self._seen.add(topic.id)
                    await self._look(topic)

    async def _look(self, topic: Topic) -> None:
        if not any(self._led_and_closed(topic, index) for index in range(topic.partitions)):
            return
        try:
            written = await written_partitions(self._broker.metadata, topic.id)
        except MetadataError as error:
            self._broker.log.warning("source_not_opened", topic=topic.name, reason=str(error), next="it is tried again")
            self._try_again(topic)
            return
        self._due.update(((topic.id, index), None) for index in written)
        for _ in range(min(OPENING_MAX - self._opening, len(self._due))):
            self._opening += 1
            self._nursery.start_soon(self._open_due)

    async def _open_due(self) -> None:
        while self._due:
            topic_id, index = next(iter(self._due))
            del self._due[topic_id, index]
            topic = self._broker.image.get_by_id(topic_id)
            if topic is not None and self._led_and_closed(topic, index):
                log = await self._broker.partitions.use(topic, index).opened()
                if log is None:  # the partition has told why
                    self._try_again(topic)
        self._opening -= 1

    def _led_and_closed(self, topic: Topic, index: int) -> bool:
        if not self._broker.leads(topic, index):
            return False
        partition = self._broker.partitions.get(topic.id, index)
        return partition is None or partition.log is None

    def _try_again(self, topic: Topic) -> None:
        self._seen.discard(topic.id)
        self._broker.timers.call_at(self._broker.world.clock.monotonic() + RETRY_SECONDS, self.stir)
