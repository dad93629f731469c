"""The store of the tables of one broker: one LMDB environment, opened when the first table on disk is used.

1. A stored table belongs to a topic id and a partition, and has a number. It holds a prefix of the partition's log,
   so a broker that leads the partition again goes on from its position.
2. A table that begins with nothing gets a new number. The rows of the number before are removed in the background.
3. The store is a cache. If its file is damaged it is set aside, and the tables are restored from snapshots and logs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

import trio

from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.recent_operations import DoneOperation
from gnomon.broker.tables.stored import store_forms as forms
from gnomon.broker.tables.stored.disk_engine import DiskEngine
from gnomon.broker.tables.stored.removal import remove_rows
from gnomon.broker.tables.stored.store_forms import RowDamaged, TablePosition
from gnomon.broker.tables.stored.tables_directory import TablesDirectory
from gnomon.log.tables.operation_id import OperationId
from gnomon.runtime.logs import Logger
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import DiskFull, Environment, World

UNBOUNDED: Final = 1 << 62
"""The changes in memory are bounded for each table (`table_flushes`)."""


class StoredTable(NamedTuple):
    """A table as the store has it."""

    engine: DiskEngine
    position: TablePosition
    operations: list[tuple[OperationId, DoneOperation]]
    """Its numbered operations."""


class TablesStore:
    """The tables on the disk of one broker."""

    def __init__(
        self,
        world: World,
        directory: TablesDirectory,
        exists: Callable[[uuid.UUID], bool],
        tasks: Tasks,
        logger: Logger,
    ) -> None:
        """A store that is not open.

        Args:
            directory: opens its environment, in a thread.
            exists: whether there is a topic with an id.
        """
        self._world = world
        self._directory = directory
        self._logger = logger
        self._exists = exists
        self._tasks = tasks
        self._environment: Environment | None = None
        self._begun: Environment | None = None
        """The environment, open and perhaps not marked as a store of tables yet."""
        self._opening = trio.Lock()
        self.memory = TablesMemory(UNBOUNDED)
        """Counts the changes that are not flushed."""

    async def open(self) -> Environment:
        """The environment; the first call opens it, and removes the tables of topics that do not exist any more.

        Raises:
            WorldError: it cannot be opened.
        """
        async with self._opening:
            if self._environment is None:
                if self._begun is None:
                    self._begun = await self._world.blocking(self._directory.open)
                    self._tell_set_aside()
                environment = self._begun
                discarded, topics = await environment.commit(partial(_begin, databases=environment.databases))
                self._environment = environment
                for number in discarded:
                    self._tasks.start_soon(self._remove, number)
                for topic_id in topics:
                    if not self._exists(topic_id):
                        await self.remove(topic_id)
        return self._environment

    def _tell_set_aside(self) -> None:
        if self._directory.problem is not None:
            advice = "its tables are restored from their snapshots and logs; delete tables.damaged"
            self._logger.error("tables_set_aside", reason=self._directory.problem, next=advice)

    def page_damaged(self) -> None:
        """A damaged page was found: the next start makes a new file."""
        self._tasks.start_soon(self._world.blocking, self._directory.mark_damaged)

    @property
    def environment(self) -> Environment | None:
        """The environment, if a table was used."""
        return self._environment

    async def table(self, topic_id: uuid.UUID, partition: int) -> StoredTable | None:
        """The table of a partition, as the flushes so far have left it; None if there is none.

        Raises:
            WorldError: the store cannot be opened, or the table cannot be begun.
        """
        environment, key = await self.open(), forms.partition_key(topic_id, partition)
        found = await environment.commit(lambda transaction: _find(transaction, environment.databases, key))
        if found is None:
            return None
        number, position, operations = found
        return StoredTable(DiskEngine(environment, key, number, self.memory, position), position, operations)

    async def begin(self, topic_id: uuid.UUID, partition: int) -> DiskEngine:
        """A table without rows for a partition; the one that it had is discarded.

        Raises:
            WorldError: it cannot be begun.
        """
        environment, key = await self.open(), forms.partition_key(topic_id, partition)
        number, discarded = await environment.commit(
            lambda transaction: _replace(transaction, environment.databases, key)
        )
        if discarded is not None:
            self._tasks.start_soon(self._remove, discarded)
        return DiskEngine(environment, key, number, self.memory, None)

    async def remove(self, topic_id: uuid.UUID) -> None:
        """Removes the tables of a deleted topic, if the store is open.

        Raises:
            WorldError: they could not be removed.
        """
        environment = self._environment
        if environment is None:
            return
        removed = await environment.commit(
            lambda transaction: _remove_topic(transaction, environment.databases, topic_id)
        )
        for number in removed:
            self._tasks.start_soon(self._remove, number)

    async def _remove(self, number: int) -> None:
        """Removes the rows of a discarded table; if there is no space even for that, the next start does."""
        environment = self._environment
        assert environment is not None, "a table was discarded, so the store is open"
        with suppress(DiskFull):
            await remove_rows(environment, forms.ROWS, number)
            key, tables = forms.discarded_key(number), environment.databases[forms.TABLES]
            await environment.commit(lambda transaction: transaction.delete(key, db=tables))


def _begin(transaction: Any, databases: dict[str, Any]) -> tuple[list[int], list[uuid.UUID]]:
    """Marks a new store; returns the numbers of the tables that were discarded before, and the topics with tables."""
    tables = databases[forms.TABLES]
    if transaction.get(forms.FORMAT_KEY, db=tables) is None:
        transaction.put(forms.FORMAT_KEY, forms.FORMAT, db=tables)
        transaction.put(forms.NEXT_KEY, forms.number_key(0), db=tables)
    keys = [bytes(key) for key, _ in transaction.cursor(tables)]
    discarded = [forms.number_of(key) for key in keys if key.startswith(forms.DISCARDED)]
    topics = dict.fromkeys(forms.topic_of(key) for key in keys if key.startswith(forms.PARTITIONS))
    return discarded, list(topics)


def _find(
    transaction: Any, databases: dict[str, Any], key: bytes
) -> tuple[int, TablePosition, list[tuple[OperationId, DoneOperation]]] | None:
    """The number, the position and the operations of a table; None without one that is whole."""
    stored = transaction.get(key, db=databases[forms.TABLES])
    try:
        if stored is None:
            return None
        number, position = forms.decode_table(forms.unseal(key, stored))
        if position is None:
            return None
        begin, operations = forms.number_key(number), []
        cursor = transaction.cursor(databases[forms.OPERATIONS])
        if cursor.set_range(begin):
            for row, value in cursor:
                if bytes(row[: len(begin)]) != begin:
                    break
                operations.append(forms.decode_done(row, forms.unseal(row, value)))
    except RowDamaged:
        return None
    return number, position, operations


def _replace(transaction: Any, databases: dict[str, Any], key: bytes) -> tuple[int, int | None]:
    """Begins a table under a new number; returns that, and the number that was discarded, if there was one."""
    tables = databases[forms.TABLES]
    discarded = _discard(transaction, tables, key)
    number = forms.number_of(transaction.get(forms.NEXT_KEY, db=tables))
    transaction.put(forms.NEXT_KEY, forms.number_key(number + 1), db=tables)
    transaction.put(key, forms.seal(key, forms.encode_table(number, None)), db=tables)
    return number, discarded


def _discard(transaction: Any, tables: Any, key: bytes) -> int | None:
    stored = transaction.get(key, db=tables)
    if stored is None:
        return None
    transaction.delete(key, db=tables)
    try:
        number, _ = forms.decode_table(forms.unseal(key, stored))
    except RowDamaged:
        return None  # its rows remain until the store is set aside
    transaction.put(forms.discarded_key(number), b"", db=tables)
    return number


def _remove_topic(transaction: Any, databases: dict[str, Any], topic_id: uuid.UUID) -> list[int]:
    tables, gone = databases[forms.TABLES], []
    prefix = forms.topic_prefix(topic_id)
    cursor = transaction.cursor(tables)
    if cursor.set_range(prefix):
        gone = list(takewhile(lambda key: key.startswith(prefix), map(bytes, cursor.iternext(values=False))))
    discarded = [_discard(transaction, tables, key) for key in gone]
    return [number for number in discarded if number is not None]
