"""What topics keep no longer: their logs are rolled and trimmed by time and size, on all partitions of one broker.

What is due by time or size goes once every durable subscription of the topic and of its shadows has read it, unless
`gnomon.retention.hold` is `none`: the subscriptions add to Kafka's rules, and take nothing from them.
"""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING, NoReturn

from gnomon.bookie.errors import LedgerError
from gnomon.broker.partition.chain import all_segments
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.log import PartitionLog, segments_to_drop
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.trim import Held
from gnomon.broker.partitions_in_use import InUse
from gnomon.broker.subscriptions.hold import Hold, Slowest, read_hold
from gnomon.broker.subscriptions.reading import LogPositions
from gnomon.broker.topics import Topic
from gnomon.metadata.client import MetadataError
from gnomon.runtime.world import WorldError

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

TRIES = 3
"""How often a trim is tried in one pass, where subscriptions come meanwhile."""


class Retention:
    """The regular look for what is old."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def run(self) -> NoReturn:
        """Looks every `log.retention.check.interval.ms`, and for topics whose deletion was not finished."""
        broker = self._broker
        while True:
            await broker.world.clock.sleep(broker.configs.number("log.retention.check.interval.ms") / 1000)
            await self.enforce()
            await broker.topic_admin.finish_deletions()

    async def enforce(self) -> None:
        """Rolls and drops what the topics' settings say, partition by partition.

        A partition that nobody has used since the start is opened only where sealed segments of it are due, or where
        the one that it was writing began so long ago that it may be. One whose last append failed is opened again: what
        was given up may be the room that it lacked.
        """
        log = self._broker.log
        partitions = self._broker.partitions.with_own_log()
        try:
            partitions += await self._unused_with_old_segments()
        except MetadataError as error:
            log.error("retention_failed", reason=str(error))
        holds = Holds(self._broker)
        for topic_id, index, partition in partitions:
            topic = self._broker.image.get_by_id(topic_id)
            try:
                await partition.opened_to_write()
                if topic is not None:
                    await self._enforce(topic, index, partition, holds)
            except (LedgerError, MetadataError, WorldError) as error:
                log.error("retention_failed", reason=str(error))

    async def _enforce(self, topic: Topic, index: int, partition: Partition, holds: Holds) -> None:
        async def held() -> Held | None:
            if not self._broker.settings_of(topic).held_by_subscriptions:
                return None
            hold, log = await holds.of(topic), partition.log
            if log is None:  # it was taken over or deleted meanwhile: nothing goes
                return Held(Offset(0), ())
            return Held(await held_offset(partition, log, hold.slowest.get(index)), (hold.unchanged,))

        for _ in range(TRIES):
            if await partition.enforce_retention(held):
                return
            holds.forget(topic)

    async def _unused_with_old_segments(self) -> list[InUse]:
        broker = self._broker
        now_ms = broker.world.clock.wall_ms()
        due = []
        async with aclosing(all_segments(broker.metadata)) as partitions:
            async for topic_id, index, segments in partitions:
                topic = broker.image.get_by_id(topic_id)
                if topic is None or broker.partitions.get(topic_id, index) or not broker.leads(topic, index):
                    continue
                if segments_to_drop(broker.settings_of(topic), segments, 0, now_ms):
                    due.append(InUse(topic_id, index, broker.partitions.use(topic, index)))
        return due


class Holds:
    """What holds the records of topics, asked once a topic."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[uuid.UUID, Hold] = {}

    async def of(self, topic: Topic) -> Hold:
        """What holds a topic's records.

        Raises:
            MetadataError: it cannot be read.
        """
        hold = self._known.get(topic.id)
        if hold is None:
            shadows = [shadow.name for shadow in self._broker.image.shadows_of(topic)]
            hold = self._known[topic.id] = await read_hold(self._broker.metadata, topic, shadows)
            for index, slowest in hold.slowest.items():
                if slowest.damage is not None:
                    self._tell_damage(index, slowest)
        return hold

    def forget(self, topic: Topic) -> None:
        """It has changed."""
        self._known.pop(topic.id, None)

    def _tell_damage(self, index: int, slowest: Slowest) -> None:
        self._broker.log.error(
            "position_unreadable",
            topic=slowest.topic,
            partition=index,
            subscription=slowest.subscription,
            reason=slowest.damage,
            meaning="retention gives up nothing of this partition",
            next="delete the subscription, or read it with the gnomon that wrote it",
        )


async def held_offset(partition: Partition, log: PartitionLog, slowest: Slowest | None) -> Offset:
    """Where the slowest subscription of a partition stands; the end of its log where there is none.

    Raises:
        LedgerError: it cannot be found out.
    """
    if slowest is None:
        return log.high_watermark
    return await LogPositions(log, partition).offset_of(slowest.position)
