"""Backlog quotas: bounds on the unread records of the durable subscriptions of a topic and of its shadows.

1. A backlog begins at the stored position of the slowest subscription of a partition. So it includes records that were
   acknowledged after the position was stored. If a subscription has a segment (a ledger with its positions), the
   position is read from that segment.
2. The partitions in use here are checked every LOOK_SECONDS. So for that time producers can exceed a quota, and can
   still be refused after the backlog has shrunk.
3. The bytes of a backlog are estimated (`backlog_size`).
4. For a subscription whose stored position cannot be decoded, no record is dropped, but producers can be refused.
5. As long as the slowest position or the log cannot be read, no record is dropped, and producers are refused if they
   were refused before.
"""

from __future__ import annotations

import uuid
from typing import NoReturn

from gnomon.bookie.errors import LedgerError
from gnomon.broker.configs.topic_configs import BACKLOG_BYTES, BACKLOG_MS
from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.stretches import bytes_from, last_stretch, offset_for_bytes, stretches
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.retention.backlog_size import age_ms
from gnomon.broker.retention.holds import Holds, held_offset
from gnomon.broker.storage import Storage
from gnomon.broker.subscriptions.positions.hold import Holder, only_advanced
from gnomon.broker.topics.topics import Topics
from gnomon.log.entry import Offset
from gnomon.log.topic import Topic
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.world import Clock, WorldError

LOOK_SECONDS = 10.0


class BacklogQuotas:
    """Checks the backlogs of one broker's partitions regularly."""

    def __init__(
        self,
        topics: Topics,
        partitions: PartitionsInUse,
        holds: Holds,
        storage: Storage,
        batch_thread: BatchThread,
        clock: Clock,
        metrics: Metrics,
        log: Logger,
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._holds = holds
        self._storage = storage
        self._batch_thread = batch_thread
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._refusing: dict[tuple[uuid.UUID, int], None] = {}
        metrics.watch(
            "backlog_refusing_partitions",
            "Partitions that refuse to be produced to because of their backlog quota",
            lambda: len(self._refusing),
        )

    async def run(self) -> NoReturn:
        """Checks every LOOK_SECONDS."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Measures the backlogs of all partitions in use that have a quota."""
        self._holds.ask_again()
        self._refusing.clear()
        for topic_id, index, partition in self._partitions.with_own_log():
            topic, log = self._topics.image.get_by_id(topic_id), partition.log
            if topic is None or log is None:
                continue
            try:
                log.refusal = await self._refusal(topic, index, partition, log)
            except (KafkaError, LedgerError, MetadataError, WorldError) as error:
                self._log.warning(
                    "backlog_not_measured",
                    topic=topic.name,
                    partition=index,
                    reason=str(error),
                    next="it is tried again",
                )
            if log.refusal is not None:
                self._refusing[topic_id, index] = None

    async def _refusal(self, topic: Topic, index: int, partition: Partition, log: PartitionLog) -> str | None:
        """The reason to refuse new records, None without one; drops the oldest records instead if the topic says so."""
        settings = log.settings
        if settings.backlog_ms_max < 0 and not 0 <= settings.backlog_bytes_max < (partition.size_bytes() or 0):
            return None
        before = self._holds.before(topic)
        if (
            before is not None
            and await only_advanced(self._storage.metadata, before)  # saves a read: 100,000 positions take 0.7 s
            and await self._excess(partition, log, before.lowest(index)) is None
        ):
            return None

        async def exceeds(holder: Holder) -> bool:
            return await self._excess(partition, log, holder) is not None

        slowest = await self._holds.slowest(topic, index, exceeds)
        if slowest is None or slowest.unread:  # `unread`: it exceeded nothing; the log may have grown since
            return None
        excess = await self._excess(partition, log, slowest)
        if excess is None:
            return None
        if slowest.out_of_reach is not None:
            raise slowest.out_of_reach
        if not settings.backlog_drops or slowest.damage is not None:
            who = f"subscription '{slowest.subscription}' of topic '{slowest.topic}'"
            return f"{who} has not read {excess}: have it read, delete it, or raise the quota"
        await self._drop(topic, index, partition, log, slowest)
        return None

    async def _excess(self, partition: Partition, log: PartitionLog, slowest: Holder | None) -> str | None:
        """The quota that the backlog of a subscription exceeds, as a text; None if it exceeds none."""
        if slowest is None:
            return None
        settings, offset = log.settings, held_offset(log, slowest)
        size_bytes = bytes_from(stretches(partition, last_stretch(partition, log)), offset)
        if 0 <= settings.backlog_bytes_max < size_bytes:
            return f"{size_bytes} bytes of the partition, {BACKLOG_BYTES} allows {settings.backlog_bytes_max}"
        if settings.backlog_ms_max >= 0:
            waited_ms = await age_ms(partition, log, offset, self._clock)
            if waited_ms > settings.backlog_ms_max:
                return f"records for {waited_ms} ms, {BACKLOG_MS} allows {settings.backlog_ms_max}"
        return None

    async def _drop(self, topic: Topic, index: int, partition: Partition, log: PartitionLog, slowest: Holder) -> None:
        first = held_offset(log, slowest)
        if partition.log is not log:  # the partition was taken over or opened again meanwhile
            return
        end = await self._allowed_from(partition, log)
        if partition.view is not None and end > partition.view.kept_from:
            partition.view.want_trim(end)
            end = partition.view.kept_from
        if end <= first:
            return
        end = await partition.delete_before(end)
        acknowledged = sum(max(0, min(stop, end) - max(start, first)) for start, stop in slowest.ranges)
        records = max(0, end - first - acknowledged)
        self._metrics.backlog_records_dropped += records
        self._log.warning(
            "backlog_dropped",
            topic=topic.name,
            partition=index,
            subscription=slowest.subscription,
            of_topic=slowest.topic,
            first=first,
            end=end,
            records=records,
            meaning="the quota of the topic does not allow a larger backlog: these records are gone",
        )

    async def _allowed_from(self, partition: Partition, log: PartitionLog) -> Offset:
        """The lowest position whose backlog is within the quotas."""
        settings: PartitionSettings = log.settings
        end = log.start_offset
        if settings.backlog_bytes_max >= 0:
            end = max(
                end, offset_for_bytes(stretches(partition, last_stretch(partition, log)), settings.backlog_bytes_max)
            )
        if settings.backlog_ms_max >= 0:
            oldest_ms = self._clock.wall_ms() - settings.backlog_ms_max
            found = await partition.offset_for_timestamp(oldest_ms, self._batch_thread.work_for_broker)
            end = max(end, log.high_watermark if found is None else found[0])
        return min(end, log.high_watermark)
