"""The state that the table of a partition begins with: the one in its store, else its newest snapshot, else nothing.

1. A stored table or a snapshot is a prefix of this log only if the log has, before its end, the batch that was applied
   last. If it has another one there, the table or the snapshot belongs to another life of the log, or to a newer copy
   of it, and is not used.
2. A stored table whose last batch is trimmed cannot be compared, and is not used. A snapshot is used if the log begins
   where it ends.
3. A damaged snapshot is not used. As long as the log has all records, the table is restored from the log.
4. The log that a shadow shows may end before the one of its source does. As long as it `grows`, nothing is discarded
   for having applied more.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from gnomon.broker.tables.engines.memory_engine import MemoryEngine
from gnomon.broker.tables.engines.table_engine import TableEngine
from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.recent_operations import DoneOperation
from gnomon.broker.tables.snapshots.newest_snapshot import NewestSnapshot
from gnomon.broker.tables.stored.disk_engine import DiskEngine
from gnomon.broker.tables.stored.store_forms import PageDamaged, RowDamaged
from gnomon.broker.tables.stored.tables_store import StoredTable, TablesStore
from gnomon.broker.tables.table_log import LogUnreadable, TableLog
from gnomon.broker.tables.table_state import TableState
from gnomon.log.entry import Offset
from gnomon.log.log_reader import LogBounds
from gnomon.log.tables.operation_id import OperationId
from gnomon.log.tables.snapshot_form import SnapshotDamaged, SnapshotRecord
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.world import Clock


class TableTooLarge(Exception):
    """A snapshot does not fit into the memory of tables; the text says why."""


class TableHome(NamedTuple):
    """The place of one partition's table."""

    topic_id: uuid.UUID
    partition: int
    memory: TablesMemory
    store: TablesStore | None
    """None for a table in memory."""


class TableOrigin:
    """Begins the table of one partition."""

    def __init__(self, home: TableHome, log: TableLog, newest: NewestSnapshot, clock: Clock, logger: Logger) -> None:
        self._home = home
        self._log = log
        self._newest = newest
        self._clock = clock
        self._logger = logger
        self._is_damaged = False

    def discard(self, error: RowDamaged) -> None:
        """The stored table is damaged: the next one begins without it."""
        self._is_damaged = True
        self._tell_discarded(str(error))
        if isinstance(error, PageDamaged) and self._home.store is not None:
            self._home.store.page_damaged()

    def _tell_discarded(self, reason: str) -> None:
        advice = "it is restored from its snapshot and its log"
        self._logger.warning("table_discarded", reason=reason, next=advice)

    async def begin(self, log: LogBounds, *, grows: bool = False) -> tuple[TableState, DiskEngine | None]:
        """The state to apply the log to, from `state.applied` on, and its engine if that is one on disk.

        Args:
            grows: whether the log may have more than it shows yet.

        Raises:
            WorldError: the store cannot be used.
            LedgerError, MetadataError: the log or the snapshot cannot be read now.
            LogUnreadable: neither the log nor a snapshot has the records that the table lacks, or the log does not show
                yet what was applied.
            TableTooLarge: the memory has no room for the snapshot.
        """
        snapshot = await self._snapshot(log, grows=grows)
        if self._home.store is not None:
            found = await self._found_in_store(self._home.store, log, grows=grows)
            if found is not None:
                return found
        if snapshot is not None:
            try:
                return await self._restored(snapshot)
            except SnapshotDamaged as error:
                self._newest.reject(str(error))
        if log.start_offset > 0:
            raise LogUnreadable(f"the log begins at offset {log.start_offset}, and no snapshot has what was before")
        return await self._empty(Offset(0))

    async def _empty(self, applied: Offset) -> tuple[TableState, DiskEngine | None]:
        home = self._home
        if home.store is None:
            return TableState(MemoryEngine(home.memory), applied), None
        engine = await home.store.begin(home.topic_id, home.partition)
        return TableState(engine, applied), engine

    # --- what is used -----------------------------------------------------------------------------------------------

    async def _snapshot(self, log: LogBounds, *, grows: bool) -> SnapshotRecord | None:
        record = await self._newest.load()
        if record is None:
            return None
        if record.end < log.start_offset:
            reason = f"the snapshot ends at offset {record.end}, and the log begins at {log.start_offset}"
        elif record.end == log.start_offset:
            return record
        else:
            reason = await self._why_not(record.end, record.identity, log, grows=grows) or ""
        if not reason:
            return record
        self._newest.reject(reason)
        return None

    async def _found_in_store(
        self, store: TablesStore, log: LogBounds, *, grows: bool
    ) -> tuple[TableState, DiskEngine] | None:
        """The stored table, if it is a prefix of the log."""
        home = self._home
        if self._is_damaged:
            self._is_damaged = False
            return None
        stored = await store.table(home.topic_id, home.partition)
        if stored is None:
            return None
        position = stored.position
        reason = await self._why_not(position.applied, position.record, log, grows=grows)
        if reason is not None:
            self._tell_discarded(reason)
            return None
        self._logger.debug("table_found_in_store", applied=position.applied)
        return _state_of(stored, position.applied), stored.engine

    async def _why_not(self, end: Offset, identity: bytes | None, log: LogBounds, *, grows: bool) -> str | None:
        """The reason why what was applied up to `end` is no prefix of the log; None if it is one.

        Raises:
            LedgerError: the log cannot be read now.
            LogUnreadable: the log does not have the batch before `end` now. A shadow learns late of appends and trims.
        """
        if end > log.high_watermark:
            reason = f"it has applied the log to offset {end}, and the log ends at {log.high_watermark}"
            if grows:
                raise LogUnreadable(reason)
            return reason
        if end <= log.start_offset and end + log.start_offset:
            return f"the log begins at offset {log.start_offset}, and has no batch before {end} to compare"
        if end:
            found = await self._log.identity_before(end)
            if found is None:
                raise LogUnreadable(f"the batch before offset {end} is trimmed, or the partition was opened again")
            if found != identity:
                return f"the log has another batch before offset {end} than the one that was applied"
        return None

    # --- restoring --------------------------------------------------------------------------------------------------

    async def _restored(self, record: SnapshotRecord) -> tuple[TableState, DiskEngine | None]:
        """The state that a snapshot has."""
        state, engine = await self._empty(record.end)
        try:
            async for entries, operations in self._newest.ledgers.parts(record):
                done = [_operation(*each) for each in operations]
                for operation, outcome in done:
                    state.operations.restore(operation, outcome)
                if engine is None:
                    self._put(state.engine, entries)
                else:
                    changes = {(each.writer, each.number): (each.answered_below, outcome) for each, outcome in done}
                    await engine.restore(entries, changes)
                await self._clock.sleep(PAUSE_SECONDS)
            if engine is not None:
                await engine.restored(record.end, record.identity)
        except BaseException:
            for _ in state.engine.close():
                pass
            raise
        self._logger.debug("table_restored", revision=record.revision, keys=record.keys)
        return state, engine

    def _put(self, engine: TableEngine, entries: list[tuple[bytes, bytes]]) -> None:
        refusal = self._home.memory.refusal(sum(len(key) + len(packed) for key, packed in entries))
        if refusal is not None:
            raise TableTooLarge(refusal)
        for key, packed in entries:
            engine.put(key, packed, None)


def _state_of(stored: StoredTable, applied: Offset) -> TableState:
    state = TableState(stored.engine, applied)
    for operation, done in stored.operations:
        state.operations.restore(operation, done)
    return state


def _operation(
    writer: bytes, number: int, answered_below: int, base: int, end: int, timestamp_ms: int, succeeded: bool
) -> tuple[OperationId, DoneOperation]:
    """An operation in a snapshot."""
    done = DoneOperation(Offset(base), Offset(end), timestamp_ms, succeeded, None)
    return OperationId(writer, number, answered_below, succeeded), done
