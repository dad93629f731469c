"""The writers of a cluster, seen and ended without a driver: their decisions, and the rows that are not delivered."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.decisions import Proposal
from gnomon.spark.writing.committing import SinkDriver
from gnomon.spark.writing.earlier_delivery import delivered_batches
from gnomon.spark.writing.targets import SINK_PREFIX
from gnomon.spark.writing.writer_topic import WriterTopic


class NoSuchWriter(Exception):
    """No writer has this name."""


class UndeliveredRows(NamedTuple):
    """The rows of a decision for one target partition."""

    target: TopicPartition
    rows: int
    delivered: int
    """The first rows, which the target has."""


class WriterState(NamedTuple):
    """A writer as its topic shows it."""

    writer: str
    decision: Proposal | None
    """The last one."""
    decided_ms: int
    rows: tuple[UndeliveredRows, ...]
    """Of the last decision; none if it is applied."""

    @property
    def is_applied(self) -> bool:
        """Whether nothing is left to do."""
        return not self.rows


class Writers:
    """The writers of one cluster."""

    def __init__(self, cluster: KafkaBrokers) -> None:
        self._cluster = cluster

    async def names(self) -> list[str]:
        """The names of all writers; raises as `KafkaBrokers.retried`."""
        topics = await self._cluster.retried("", self._cluster.topics)
        return sorted(name.removeprefix(SINK_PREFIX) for name in topics if name.startswith(SINK_PREFIX))

    async def state(self, writer: str) -> WriterState:
        """The state of a writer.

        Raises:
            NoSuchWriter: see there.
            DeliveryFailed: records that tell how much is delivered were deleted.
            RequestRefused, Unreachable: as `KafkaBrokers.retried`.
        """
        driver = await self._driver(writer)
        batches = await driver.undelivered()
        if driver.decisions.last is None or batches is None:
            return WriterState(writer, driver.decisions.last, driver.decided_ms, ())
        found = await delivered_batches(self._cluster, driver.decisions.last, batches)
        rows: Counter[TopicPartition] = Counter()
        delivered: Counter[TopicPartition] = Counter()
        place: Counter[TopicPartition] = Counter()
        for each in batches.staged:
            rows[each.target] += each.records
            delivered[each.target] += each.records if place[each.target] < found[each.target] else 0
            place[each.target] += 1
        left = tuple(UndeliveredRows(target, count, delivered[target]) for target, count in sorted(rows.items()))
        return WriterState(writer, driver.decisions.last, driver.decided_ms, left)

    async def finish(self, writer: str) -> None:
        """Delivers the rows of the last decision; raises as `SinkDriver.recover`, and NoSuchWriter."""
        await (await self._driver(writer)).recover()

    async def forget(self, writer: str) -> WriterState:
        """Gives up the rows of the last decision that are not delivered; returns the state before. Raises as `state`.

        For every driver the decision is applied from here on.
        """
        before = await self.state(writer)
        if not before.is_applied:
            await (await self._driver(writer)).clean()
        return before

    async def _driver(self, writer: str) -> SinkDriver:
        topic = await WriterTopic.find(self._cluster, writer)
        if topic is None:
            raise NoSuchWriter(f"there is no writer {writer!r}")
        return SinkDriver(self._cluster, topic, lambda _: None)
