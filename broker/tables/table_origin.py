"""The state that the table of a partition begins with: the one in the store, or an empty one.

1. A stored table is a prefix of this log only if the log has, before its position, the batch that was applied last. If
   it has another one there, or none, the stored table is discarded: it belongs to another life of the log, or to a
   newer copy of it.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.tables.memory_engine import MemoryEngine
from gnomon.broker.tables.stored.disk_engine import DiskEngine
from gnomon.broker.tables.stored.store_forms import TablePosition
from gnomon.broker.tables.stored.tables_store import StoredTable, TablesStore
from gnomon.broker.tables.table_log import TableLog
from gnomon.broker.tables.table_state import TableState
from gnomon.broker.tables.tables_memory import TablesMemory
from gnomon.log.entry import Offset
from gnomon.runtime.logs import Logger


class TableHome(NamedTuple):
    """The place of one partition's table."""

    topic_id: uuid.UUID
    partition: int
    memory: TablesMemory
    store: TablesStore | None
    """None for a table in memory."""


class TableOrigin:
    """Begins the table of one partition."""

    def __init__(self, home: TableHome, log: TableLog, logger: Logger) -> None:
        self._home = home
        self._log = log
        self._logger = logger
        self._is_damaged = False

    def discard(self, reason: str) -> None:
        """The stored table is damaged: the next one begins with nothing."""
        self._is_damaged = True
        self._tell_discarded(reason)

    def _tell_discarded(self, reason: str) -> None:
        self._logger.warning("table_discarded", reason=reason, next="it is restored from its log")

    async def begin(self, log: PartitionLog) -> tuple[TableState, DiskEngine | None]:
        """The state to apply the log to, from `state.applied` on, and its engine if that is one on disk.

        Raises:
            WorldError: the store cannot be used.
            LedgerError: the log cannot be read.
        """
        home = self._home
        if home.store is None:
            return TableState(MemoryEngine(home.memory), Offset(0)), None
        stored = await self._stored(home.store, log)
        position = stored.position
        state = TableState(stored.engine, Offset(0) if position is None else position.applied)
        for operation, done in stored.operations:
            state.operations.restore(operation, done)
        return state, stored.engine

    async def _stored(self, store: TablesStore, log: PartitionLog) -> StoredTable:
        """The stored table, if it is a prefix of the log; otherwise a new one."""
        home = self._home
        if not self._is_damaged:
            stored = await store.table(home.topic_id, home.partition)
            reason = None if stored.position is None else await self._why_not(stored.position, log)
            if reason is None:
                if stored.position is not None:
                    self._logger.debug("table_found_in_store", applied=stored.position.applied)
                return stored
            self._tell_discarded(reason)
        self._is_damaged = False
        return await store.begin(home.topic_id, home.partition)

    async def _why_not(self, position: TablePosition, log: PartitionLog) -> str | None:
        """The reason why a stored table is no prefix of the log; None if it is one."""
        applied = position.applied
        if applied > log.high_watermark:
            return f"the store has applied the log to offset {applied}, and the log ends at {log.high_watermark}"
        if applied and await self._log.identity_before(applied) != position.record:
            return f"the log has not the batch before offset {applied} that the store has applied"
        return None
