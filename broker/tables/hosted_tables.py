"""The tables of one broker: their memory, their store, and the tasks that they share."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress

import trio

from gnomon.broker.configs.topic_configs import is_on_disk, is_table
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.storage import Storage
from gnomon.broker.tables.hosted_table import HostedTable, Loop
from gnomon.broker.tables.snapshots.snapshot_ledgers import SnapshotLedgers
from gnomon.broker.tables.stored.tables_directory import TablesDirectory
from gnomon.broker.tables.stored.tables_store import TablesStore
from gnomon.broker.tables.table_origin import TableHome
from gnomon.broker.tables.tables_memory import TablesMemory
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
        self._settings = settings
        self._storage = storage
        self._log = log
        self._tasks = OwnTasks()
        self._tables: dict[tuple[uuid.UUID, int], HostedTable] = {}
        """The table that was made last, by topic id and partition."""
        self._loop = Loop(batch_thread, world.clock, timers, self._tasks, trio.Lock())
        self.memory = TablesMemory(settings.memory_bytes_max)
        """Counts the entries of the tables in memory."""
        self.store = TablesStore(world, directory.open, exists, self._tasks)
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

    def add_view(self, partition: Partition, topic: Topic, index: int) -> None:
        """Gives a partition of a topic its table, if the topic is one."""
        if not is_table(topic.configs):
            return
        on_disk = is_on_disk(topic.configs)
        memory = self.store.memory if on_disk else self.memory
        snapshots = SnapshotLedgers(self._storage, topic, index)
        partition.view = table = HostedTable(
            partition,
            KeyPlacement(index, topic.partitions),
            TableHome(topic.id, index, memory, self.store if on_disk else None, snapshots),
            self._settings,
            self._loop,
            self._log.bind(topic=topic.name, partition=index),
        )
        self._tables[topic.id, index] = table
