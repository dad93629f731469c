"""What topics keep no longer: their logs are rolled and trimmed by time and size, on all partitions of one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from gnomon.bookie.errors import LedgerError
from gnomon.broker.partition.chain import sealed_segments
from gnomon.broker.partition.log import segments_to_drop
from gnomon.broker.partition.partition import Partition
from gnomon.metadata.client import MetadataError
from gnomon.runtime.world import WorldError

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker


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

        A partition that nobody has used since the start is opened only where sealed segments of it are due; the one
        that it was writing then stays until it is used.
        """
        log = self._broker.log
        partitions = self._broker.partitions_open()
        try:
            partitions += await self._unused_with_old_segments()
        except MetadataError as error:
            log.error("retention_failed", reason=str(error))
        for partition in partitions:
            try:
                await partition.opened()
                await partition.enforce_retention()
            except (LedgerError, MetadataError, WorldError) as error:
                log.error("retention_failed", reason=str(error))

    async def _unused_with_old_segments(self) -> list[Partition]:
        broker = self._broker
        now_ms = broker.world.clock.wall_ms()
        due = []
        for topic_id, index, sealed in await sealed_segments(broker.metadata):
            topic = broker.image.get_by_id(topic_id)
            if topic is None or broker.is_open(topic_id, index) or not broker.leads(topic, index):
                continue
            if segments_to_drop(broker.settings_of(topic), sealed, 0, now_ms):
                due.append(broker.partition(topic, index))
        return due
