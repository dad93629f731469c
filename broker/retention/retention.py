"""Retention by time and size: ends last segments that are old, and drops the oldest segments, on one broker.

A segment that is due is dropped once every durable subscription of the topic and of its shadows has read it and no read
hold needs it, or at once if `gnomon.retention.hold` is `none`. Both can delay a drop, and never cause one.
"""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import NoReturn

from gnomon.bookie.errors import LedgerError
from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.in_use.partitions_in_use import InUse, PartitionsInUse
from gnomon.broker.partition.log import segments_to_drop
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.trim import RetentionBound
from gnomon.broker.placement.placement import Placement
from gnomon.broker.retention.holds import Holds, held_offset
from gnomon.broker.retention.holdups import Holdup, Holdups
from gnomon.broker.storage import Storage
from gnomon.broker.subscriptions.positions.hold import Holder
from gnomon.broker.topics.deleted_topics import DeletedTopics
from gnomon.broker.topics.topics import Topics
from gnomon.log.chains import all_segments
from gnomon.log.entry import Offset
from gnomon.log.topic import Topic
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock, WorldError

TRIES = 3
"""Attempts at a trim in one pass, if subscriptions or segments change meanwhile."""


class Retention:
    """Applies retention to the partitions of one broker regularly."""

    def __init__(
        self,
        topics: Topics,
        placement: Placement,
        partitions: PartitionsInUse,
        deleted: DeletedTopics,
        holds: Holds,
        holdups: Holdups,
        storage: Storage,
        configs: BrokerConfigs,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._topics = topics
        self._placement = placement
        self._partitions = partitions
        self._deleted = deleted
        self._holds = holds
        self._holdups = holdups
        self._storage = storage
        self._configs = configs
        self._clock = clock
        self._log = log

    async def run(self) -> NoReturn:
        """Applies retention every `log.retention.check.interval.ms`, and finishes unfinished deletions of topics."""
        while True:
            await self._clock.sleep(self._configs.number("log.retention.check.interval.ms") / 1000)
            await self.enforce()
            await self._deleted.finish_all()

    async def enforce(self) -> None:
        """Rolls and drops segments by the topics' settings, partition by partition.

        A partition that was not used since the start is opened only if its sealed segments are due, or if its last
        segment began so long ago that it may be due. A partition whose last append failed is opened again: dropped
        segments may free the space that it lacked.
        """
        partitions = self._partitions.with_own_log()
        try:
            partitions += await self._unused_with_old_segments()
        except MetadataError as error:
            self._log.warning("retention_failed", reason=str(error), next="it is tried again")
        self._holds.ask_again()
        holdups: dict[tuple[uuid.UUID, int], Holdup] = {}
        for topic_id, index, partition in partitions:
            topic = self._topics.image.get_by_id(topic_id)
            try:
                await partition.opened_to_write()
                if topic is not None:
                    holdup = await self._enforce(topic, index, partition)
                    if holdup is not None:
                        holdups[topic_id, index] = holdup
            except (LedgerError, MetadataError, WorldError) as error:
                self._log.warning("retention_failed", reason=str(error), next="it is tried again")
        self._holdups.replace(holdups)

    async def _enforce(self, topic: Topic, index: int, partition: Partition) -> Holdup | None:
        """Drops what is due and read by all; returns the subscription that keeps records which are due."""
        holdup: Holdup | None = None

        async def held(end: Offset) -> RetentionBound | None:
            nonlocal holdup
            if not self._topics.settings_of(topic).held_by_subscriptions:
                return None
            hold, log = await self._holds.of(topic), partition.log
            if log is None:  # taken over or deleted meanwhile: nothing is dropped
                return RetentionBound(Offset(0), ())

            async def holds_up(holder: Holder) -> bool:
                return held_offset(log, holder) < end

            slowest = await self._holds.slowest(topic, index, holds_up)
            first = held_offset(log, slowest)
            holdup = None
            if slowest is not None and first < end:
                holdup = Holdup(slowest.topic, index, slowest.subscription, first, end)
            return RetentionBound(await self._holds.bound(topic, index, log, slowest), (hold.unchanged,))

        for _ in range(TRIES):
            if await partition.enforce_retention(held):
                break
            self._holds.forget(topic)
        return holdup

    async def _unused_with_old_segments(self) -> list[InUse]:
        now_ms = self._clock.wall_ms()
        due = []
        async with aclosing(all_segments(self._storage.metadata)) as partitions:
            async for topic_id, index, segments in partitions:
                topic = self._topics.image.get_by_id(topic_id)
                if topic is None or self._partitions.get(topic_id, index) or not self._placement.leads(topic, index):
                    continue
                if segments_to_drop(self._topics.settings_of(topic), segments, 0, now_ms):
                    due.append(InUse(topic_id, index, self._partitions.use(topic, index)))
        return due
