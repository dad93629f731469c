"""The partitions in use on one broker: those with a log of their own, and those of shadows (which show another's log).

1. The object of a partition is created, and its log opened, on first use. Partitions that were never used take no
   memory.
2. A partition is in use only while this broker leads it. It is released when the leadership ends, and created again on
   its next use.
3. The partitions of a topic and of its shadows end with the topic.
4. The tasks of partitions end when `run` ends. A turn of the event loop starts at most TASKS_PER_TURN of them, so that
   many partitions that open at once hold it for a few milliseconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.refused_batches import RefusedBatches
from gnomon.broker.partition.turns import Turns
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.placement.placement import Placement
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.shadow.source import SourceLedgers
from gnomon.broker.storage import Storage
from gnomon.broker.tables.hosted_tables import HostedTables
from gnomon.broker.topics.topics import Topics
from gnomon.log.chains import ledgers_prefix, stored_bytes
from gnomon.log.log_reader import LogBounds
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Compare
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PacedTasks
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.world import Clock

TASKS_PER_TURN = 10


class InUse(NamedTuple):
    """A partition with a log of its own."""

    topic_id: uuid.UUID
    number: int
    partition: Partition


class PartitionsInUse:
    """Finds or creates the partitions of one broker; `run` must run before the first use."""

    def __init__(
        self,
        topics: Topics,
        placement: Placement,
        storage: Storage,
        claimant: Callable[[], Sequence[Compare]],
        policy: LeaderPolicy,
        refused: RefusedBatches,
        turns: Turns,
        batch_thread: BatchThread,
        tables: HostedTables,
        clock: Clock,
        log: Logger,
    ) -> None:
        """No partition is in use.

        Args:
            claimant: gives the conditions on the metadata under which this broker may claim a partition.
            refused: has the batches that were refused before a partition was used; the partition awaits them.
        """
        self._topics = topics
        self._placement = placement
        self._storage = storage
        self._claimant = claimant
        self._policy = policy
        self._refused = refused
        self._turns = turns
        self._batch_thread = batch_thread
        self._tables = tables
        self._clock = clock
        self._log = log
        self._tasks = OwnTasks()
        self._paced_tasks = PacedTasks(self._tasks, TASKS_PER_TURN, clock)
        self._made: list[Callable[[], None]] = []
        self._partitions: dict[tuple[uuid.UUID, int], Partition] = {}
        self._shadows: dict[tuple[uuid.UUID, int], ShadowPartition] = {}
        self._sources: dict[uuid.UUID, SourceLedgers] = {}
        """The ledger records of the sources whose shadows were used here, by source id."""
        topics.watch(ended=self._end, changed=self._configure)
        placement.watch(self._release_others)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Holds the tasks of the partitions until it is cancelled."""
        await self._tasks.run(task_status=task_status)

    def watch(self, made: Callable[[], None]) -> None:
        """Has `made` called after a partition with a log of its own came into use."""
        self._made.append(made)

    # --- using ------------------------------------------------------------------------------------------------------

    def use(self, topic: Topic, index: int) -> Partition:
        """A partition that this broker leads, as far as it knows; it is opened when it is first used.

        Raises:
            KafkaError: another broker leads it.
        """
        partition = self._partitions.get((topic.id, index))
        if partition is None:
            assert topic.source is None, f"topic '{topic.name}' has no log of its own"
            self._placement.check_led(topic, index)
            partition = self._partitions[topic.id, index] = self._make(topic, index)
            for made in self._made:
                made()
        return partition

    def _make(self, topic: Topic, index: int) -> Partition:
        storage, prefix = self._storage, ledgers_prefix(topic.id, index)
        chain = Chain(
            storage.metadata,
            storage.bookies,
            storage.entries,
            prefix,
            topic_key(topic.name),
            topic.create_revision,
            storage.quorum_of(topic.copies),
            self._claimant(),
        )
        partition = Partition(
            chain,
            self._topics.settings_of(topic),
            self._clock,
            self._paced_tasks,
            self._turns.advanced,
            self._turns.ended,
            self._log.bind(topic=topic.name, partition=index, ledgers=prefix),
            self._refused.join(topic.name, topic.id.bytes, index),
            self._policy,
            self._batch_thread,
        )
        self._tables.add_view(partition, topic, index)
        return partition

    def use_shadow(self, topic: Topic, index: int) -> ShadowPartition:
        """A partition of a shadow that this broker leads, as far as it knows; it is opened when it is first used.

        Raises:
            KafkaError: another broker leads it.
        """
        partition = self._shadows.get((topic.id, index))
        if partition is None:
            assert topic.source is not None, f"topic '{topic.name}' is no shadow"
            self._placement.check_led(topic, index)
            partition = self._shadows[topic.id, index] = self._make_shadow(topic, index, topic.source.id)
        return partition

    def _make_shadow(self, topic: Topic, index: int, source_id: uuid.UUID) -> ShadowPartition:
        storage = self._storage
        source = self._sources.get(source_id)
        if source is None:
            source = self._sources[source_id] = SourceLedgers(
                storage.metadata, self._clock, self._tasks, self._log, source_id
            )
        return ShadowPartition(
            storage.metadata,
            storage.bookies,
            storage.entries,
            source,
            index,
            lambda: self._open_source(topic, index),
            self._clock,
            self._paced_tasks,
            self._turns.advanced,
            self._turns.ended,
            self._log.bind(topic=topic.name, partition=index, ledgers=ledgers_prefix(source_id, index)),
            self._policy,
        )

    def _open_source(self, shadow: Topic, index: int) -> None:
        """Opens the source, if this broker leads it: if its writer died, only a claim finds the end of the log."""
        source = self._topics.image.source_of(shadow)
        if source is not None and self._placement.leads(source, index):
            self.use(source, index).open_log()

    # --- looking ----------------------------------------------------------------------------------------------------

    def get(self, topic_id: uuid.UUID, index: int) -> Partition | None:
        """A partition with a log of its own, if it was used here."""
        return self._partitions.get((topic_id, index))

    def open_shadow(self, topic_id: uuid.UUID, index: int) -> ShadowPartition | None:
        """A partition of a shadow, if it is open here."""
        partition = self._shadows.get((topic_id, index))
        return partition if partition is not None and partition.log is not None else None

    def log(self, topic: Topic, index: int) -> LogBounds | None:
        """The log of a topic's or a shadow's partition; None if it is not open here."""
        partition = self._partitions.get((topic.id, index)) or self._shadows.get((topic.id, index))
        return None if partition is None else partition.log

    def advertised_epoch(self, topic: Topic, index: int) -> int:
        """The leader epoch of a partition for answers to clients, -1 if it is not known or not part of answers."""
        log = self.log(topic, index) if self._policy.tells_epochs else None
        return -1 if log is None else log.epoch

    def bounds(self, topic: Topic) -> list[tuple[int, int, int]]:
        """Number, start and high watermark of each partition of a topic whose log is open here."""
        logs = [(index, self.log(topic, index)) for index in range(topic.partitions)]
        return [(index, log.start_offset, log.high_watermark) for index, log in logs if log is not None]

    def with_own_log(self) -> list[InUse]:
        """The partitions that have a log of their own."""
        return [InUse(*key, partition) for key, partition in self._partitions.items()]

    async def stored_bytes(self) -> dict[tuple[uuid.UUID, int], int]:
        """The bytes of batches by topic and number, of all partitions that were ever used; one read of the metadata."""
        storage = self._storage
        sizes = await stored_bytes(storage.metadata, storage.bookies, storage.entries)
        for key, partition in self._partitions.items():
            size = partition.size_bytes()
            if size is not None:
                sizes[key] = size
        return sizes

    # --- changes ----------------------------------------------------------------------------------------------------

    def _release_others(self) -> None:
        """Releases the partitions that other brokers lead after a change of leaders."""
        for partitions in (self._partitions, self._shadows):
            for (topic_id, index), partition in list(partitions.items()):
                topic = self._topics.image.get_by_id(topic_id)
                if topic is None or not self._placement.leads(topic, index):
                    del partitions[topic_id, index]
                    partition.release()

    def _configure(self, topic: Topic) -> None:
        """Applies the present settings of a topic to its logs."""
        for index in range(topic.partitions):
            partition = self._partitions.get((topic.id, index))
            if partition is not None:
                partition.configure(self._topics.settings_of(topic))

    def _end(self, topic: Topic, shadows: Sequence[Topic]) -> None:
        """Ends the partitions of a deleted topic and of its shadows, which showed its records."""
        for topic_id in (topic.id, *(shadow.id for shadow in shadows)):
            for partitions in (self._partitions, self._shadows):
                for key in [key for key in partitions if key[0] == topic_id]:
                    partitions.pop(key).end()
        self._sources.pop(topic.id, None)
