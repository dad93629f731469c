"""The writers of a cluster, seen and ended without a driver: their decisions, and the rows that are not delivered."""

from __future__ import annotations

from typing import NamedTuple

from gnomon.client.kafka.brokers import KafkaBrokers, UnknownTopic
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.decisions import Proposal
from gnomon.spark.writing.committing import SinkDriver
from gnomon.spark.writing.delivery import DeliveryFailed
from gnomon.spark.writing.earlier_delivery import delivered_batches
from gnomon.spark.writing.targets import SINK_PREFIX
from gnomon.spark.writing.writer_topic import WriterTopic


class NoSuchWriter(Exception):
    """No writer has this name."""


class UndeliveredRows(NamedTuple):
    """The rows of a decision for one target partition."""

    target: TopicPartition
    rows: int
    delivered: int | None
    """The first rows, which the target has; None if nobody can know that."""
    problem: str | None = None
    """Why nobody can: the topic does not exist any more, or records since the decision were deleted."""


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

    async def states(self) -> list[WriterState]:
        """The states of all writers, without those that are removed meanwhile; raises as `state`."""
        found = []
        for name in await self.names():
            try:
                found.append(await self.state(name))
            except (NoSuchWriter, UnknownTopic):
                pass  # removed between the two calls: that of a job has ended
        return found

    async def state(self, writer: str) -> WriterState:
        """The state of a writer.

        Raises:
            NoSuchWriter: see there.
            UnreadableProposal: the topic has something else than proposals.
            RequestRefused, Unreachable: as `KafkaBrokers.retried`.
        """
        return await self._state(await self._driver(writer), writer)

    async def finish(self, writer: str) -> None:
        """Delivers the rows of the last decision; raises as `SinkDriver.recover`, and NoSuchWriter."""
        await (await self._driver(writer)).recover()

    async def forget(self, writer: str) -> WriterState:
        """Gives up the rows of the last decision that are not delivered; returns the state before. Raises as `state`.

        For every driver the decision is applied from here on.
        """
        driver = await self._driver(writer)
        before = await self._state(driver, writer)
        if not before.is_applied:
            await driver.clean()
        return before

    async def _state(self, driver: SinkDriver, writer: str) -> WriterState:
        batches = await driver.undelivered()
        last = driver.decisions.last
        if last is None or batches is None:
            return WriterState(writer, last, driver.decided_ms, ())
        staged: dict[TopicPartition, list[int]] = {}
        for each in batches.staged:
            staged.setdefault(each.target, []).append(each.records)
        ends = batches.target_ends
        rows = [await self._undelivered(last, place, ends[place], staged[place]) for place in sorted(staged)]
        return WriterState(writer, last, driver.decided_ms, tuple(rows))

    async def _undelivered(
        self, decision: Proposal, target: TopicPartition, start: int, records: list[int]
    ) -> UndeliveredRows:
        """The rows for one target, whose batches have so many records."""
        try:
            found = await delivered_batches(self._cluster, decision, target, start)
        except (UnknownTopic, DeliveryFailed) as error:
            return UndeliveredRows(target, sum(records), None, str(error))
        return UndeliveredRows(target, sum(records), sum(records[:found]))

    async def _driver(self, writer: str) -> SinkDriver:
        topic = await WriterTopic.find(self._cluster, writer)
        if topic is None:
            raise NoSuchWriter(f"there is no writer {writer!r}")
        return SinkDriver(self._cluster, topic, lambda _: None)
