"""The tables of one broker, and replicas of others' tables: their memory, their store, and their common tasks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

import trio

from gnomon.broker.configs.topic_configs import is_on_disk, is_table
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.readable import Readable
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.storage import Storage
from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.broker.tables.loaded_table import LoadedTable, TablesShare
from gnomon.broker.tables.paced_calls import PacedCalls
from gnomon.broker.tables.snapshots.snapshot_ledgers import SnapshotLedgers
from gnomon.broker.tables.stored.tables_directory import TablesDirectory
from gnomon.broker.tables.stored.tables_store import TablesStore
from gnomon.broker.tables.table_counts import TableCounts
from gnomon.broker.tables.table_origin import TableHome
from gnomon.broker.tables.table_replica import TableReplica
from gnomon.broker.tables.watches.table_watches import WatchesMemory
from gnomon.log.tables.changes import KeyPlacement
from gnomon.log.topic import Topic
from gnomon.runtime.logs import Logger
from gnomon.runtime.settings.settings import TableSettings
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import DiskFull, World


class HostedTables:
    """Makes the tables of the partitions that one broker uses."""

    def __init__(
        self,
        world: World,
        directory: TablesDirectory,
        settings: TableSettings,
        batch_thread: BatchThread,
        storage: Storage,
        exists: Callable[[uuid.UUID], bool],
        timers: Timers,
        log: Logger,
    ) -> None:
        """No table is in use.

        Args:
            exists: whether there is a topic with an id.
        """
        self._storage = storage
        self._log = log
        self._tasks = OwnTasks()
        self.counts = TableCounts()
        self._tables: dict[tuple[uuid.UUID, int], HostedTable] = {}
        """The table that was made last, by topic id and partition."""
        self._replicas: dict[tuple[uuid.UUID, int], TableReplica] = {}
        paced = PacedCalls(world.clock, self._tasks)
        self._share = TablesShare(
            settings, batch_thread, world.clock, timers, self._tasks, paced, WatchesMemory(), trio.Lock(), self.counts
        )
        self.memory = TablesMemory(settings.memory_bytes_max)
        """Counts the entries of the tables in memory."""
        self.store = TablesStore(world, directory, exists, self._tasks, log)
        """Has the tables on disk."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Holds the tasks of the tables until it is cancelled.

        Then the tables end: appends in flight may still become durable, and the store may be closed by then.
        """
        try:
            await self._tasks.run(task_status=task_status)
        finally:
            for table in self._tables.values():
                table.ended()
            self.keep_replicas(())

    def topic_ended(self, topic: Topic) -> None:
        """A topic was deleted: so are its stored tables."""
        if is_table(topic.configs):
            for index in range(topic.partitions):
                self._tables.pop((topic.id, index), None)
            self._tasks.start_soon(self._remove, topic)

    async def _remove(self, topic: Topic) -> None:
        """Removes the stored tables of a deleted topic; if there is no space even for that, the next start does."""
        with suppress(DiskFull):
            await self.store.remove(topic.id)

    def _home(self, topic: Topic, index: int) -> TableHome:
        on_disk = is_on_disk(topic.configs)
        memory = self.store.memory if on_disk else self.memory
        return TableHome(topic.id, index, memory, self.store if on_disk else None)

    def add_view(self, partition: Partition, topic: Topic, index: int) -> None:
        """Gives a partition of a topic its table, if the topic is one."""
        if not is_table(topic.configs):
            return
        partition.view = table = HostedTable(
            partition,
            KeyPlacement(index, topic.partitions),
            self._home(topic, index),
            SnapshotLedgers(self._storage, topic, index),
            partial(self._take_replica, topic.id, index),
            self._share,
            self._log.bind(topic=topic.name, partition=index),
        )
        self._tables[topic.id, index] = table

    # --- metrics ----------------------------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        """The number of tables that are live; a table is that of one partition."""
        return sum(table.is_live for table in self._tables.values())

    @property
    def behind(self) -> int:
        """The number of tables that are in use and not live."""
        return sum(table.is_behind for table in self._tables.values())

    @property
    def watches(self) -> int:
        """The number of watches of clients."""
        return sum(len(table.watches) for table in self._tables.values())

    def warning(self) -> str | None:
        """A reason why some table cannot flush or take a snapshot; None if there is none."""
        found = {topic: table.warning for (topic, _), table in self._tables.items() if table.warning is not None}
        text = next(iter(found.values()), None)
        return None if text is None else f"{len(found)} tables cannot flush or take a snapshot, one because: {text}"

    # --- replicas ---------------------------------------------------------------------------------------------------

    def replica(self, source_id: uuid.UUID, index: int) -> TableReplica | None:
        """The replica of a source's partition, if there is one here."""
        return self._replicas.get((source_id, index))

    def add_replica(self, source: Topic, index: int, partition: Readable) -> None:
        """A partition of a shadow is led here: a replica follows it, unless one does."""
        before = self._replicas.get((source.id, index))
        if before is not None and before.partition is partition:
            return
        if before is not None:
            before.end()
        replica = TableReplica(
            partition,
            self._home(source, index),
            SnapshotLedgers(self._storage, source, index),
            self._share,
            self._log.bind(topic=source.name, partition=index),
        )
        self._replicas[source.id, index] = replica
        self._tasks.start_soon(replica.run)

    def keep_replicas(self, wanted: Collection[tuple[uuid.UUID, int]]) -> None:
        """Ends all other replicas."""
        for key in [key for key in self._replicas if key not in wanted]:
            self._replicas.pop(key).end()

    async def _take_replica(self, topic_id: uuid.UUID, index: int) -> LoadedTable | None:
        replica = self._replicas.pop((topic_id, index), None)
        return None if replica is None else await replica.taken()
