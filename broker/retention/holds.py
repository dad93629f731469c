"""The holds of one broker's topics: unread records of subscriptions of a topic and of its shadows, and read holds."""

from __future__ import annotations

import uuid

from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.storage import Storage
from gnomon.broker.subscriptions.positions.hold import Hold, Holder, HoldsUp, read_hold
from gnomon.broker.topics.topics import Topics
from gnomon.log.entry import Offset
from gnomon.log.topic import Topic
from gnomon.runtime.logs import Logger


class Holds:
    """A cache of the holds of topics: each topic is read once in a pass."""

    def __init__(self, topics: Topics, storage: Storage, log: Logger) -> None:
        self._topics = topics
        self._storage = storage
        self._log = log
        self._known: dict[uuid.UUID, Hold] = {}
        self._asked: set[uuid.UUID] = set()
        """The topics that were read in this pass."""

    def ask_again(self) -> None:
        """A new pass begins: each topic is read again."""
        self._asked.clear()
        self._known = {
            topic_id: hold for topic_id, hold in self._known.items() if self._topics.image.get_by_id(topic_id)
        }

    def before(self, topic: Topic) -> Hold | None:
        """The last hold on a topic's records that was read, perhaps in an earlier pass; None without one."""
        return self._known.get(topic.id)

    async def of(self, topic: Topic) -> Hold:
        """The hold on a topic's records.

        Raises:
            MetadataError: the hold cannot be read.
        """
        before = self._known.get(topic.id)
        if before is not None and topic.id in self._asked:
            return before
        storage = self._storage
        hold = self._known[topic.id] = await read_hold(storage.metadata, storage.bookies, topic, before)
        self._asked.add(topic.id)
        return hold

    async def bound(self, topic: Topic, index: int, log: PartitionLog, slowest: Holder | None) -> Offset:
        """The end of the records that retention may delete of a partition: the slowest subscription, or a read hold.

        Raises:
            MetadataError: the hold cannot be read.
        """
        offset = await (await self.of(topic)).lowest_read(index)
        bound = held_offset(log, slowest)
        return bound if offset is None else min(bound, max(offset, log.start_offset))

    def forget(self, topic: Topic) -> None:
        """Has the hold on a topic's records read again, because it has changed."""
        self._asked.discard(topic.id)

    async def slowest(self, topic: Topic, index: int, holds_up: HoldsUp) -> Holder | None:
        """See `Hold.slowest`; a position that cannot be read is logged for the operator.

        Raises:
            MetadataError, LedgerError: as `Hold.slowest`.
        """
        slowest = await (await self.of(topic)).slowest(index, holds_up)
        if slowest is not None and slowest.damage is not None:
            self._log.error(
                "position_unreadable",
                topic=slowest.topic,
                partition=index,
                subscription=slowest.subscription,
                reason=slowest.damage,
                meaning="no record is deleted that it may not have read",
                next="delete the subscription, or read it with the gnomon that wrote it",
            )
        return slowest


def held_offset(log: PartitionLog, slowest: Holder | None) -> Offset:
    """The position of the slowest subscription of a partition; the end of its log if there is none."""
    if slowest is None:
        return log.high_watermark
    return Offset(min(max(slowest.position.offset, log.start_offset), log.high_watermark))
