"""A replica of a table: it follows the log as a shadow of the table's topic shows it, and answers stale reads.

1. It applies what the shadow shows, which is confirmed. So it is a prefix of what the leader has applied.
2. Its state, or its store, is that of the source's partition. A broker that becomes the leader takes the replica over
   and goes on from there (`taken`).
3. It reads the log again after an error, and goes on from its state; after damage of its store it begins again.
4. A shadow that was opened a moment ago may show less of the log than the replica's store or snapshot has: the replica
   waits for the rest for BEHIND_SECONDS before it discards them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.broker.partition.readable import Readable
from gnomon.broker.tables.loaded_table import LoadedTable, TableBehind, TablesShare
from gnomon.broker.tables.snapshots.newest_snapshot import NewestSnapshot
from gnomon.broker.tables.snapshots.snapshot_ledgers import SnapshotLedgers
from gnomon.broker.tables.stored.store_forms import RowDamaged
from gnomon.broker.tables.table_log import LogUnreadable, TableLog
from gnomon.broker.tables.table_origin import TableHome, TableOrigin, TableTooLarge
from gnomon.broker.tables.table_state import TableState
from gnomon.log.log_reader import LogBounds
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import in_turns
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import DiskFailed, WorldError
from gnomon.wire.kafka.batch import BatchRejected
from gnomon.wire.kafka.compression import UnpackedTooLarge

AGAIN_SECONDS: Final = 1.0
BEHIND_SECONDS: Final = 60.0


class TableReplica:
    """The table of one partition of a source, at a broker that leads a shadow of it."""

    def __init__(
        self, partition: Readable, home: TableHome, snapshots: SnapshotLedgers, share: TablesShare, logger: Logger
    ) -> None:
        """A replica that follows nothing before `run`.

        Args:
            partition: the partition of the shadow.
            home: the place of the source's table.
        """
        self.partition = partition
        self._share = share
        self._logger = logger
        self._log = TableLog(partition, share.batch_thread)
        self._origin = TableOrigin(home, self._log, NewestSnapshot(snapshots, logger), share.clock, logger)
        self._table: LoadedTable | None = None
        self._without_since: float | None = None
        """Since when there is no table; None while there is one."""
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._changed = Signal()

    def wake(self) -> None:
        """See `Waiter.wake`."""
        self._changed.set()

    async def run(self) -> None:
        """Follows the shadow until `taken` or `end`."""
        with self._scope:
            self.partition.wait(self)
            try:
                await self._follow()
            finally:
                self.partition.stop_waiting(self)
        self._ended.set()

    async def _follow(self) -> None:
        while True:
            self._changed.clear()
            try:
                log = await self.partition.opened()
                if log is not None and await self._caught_up(log):
                    await self._changed.wait()
                    continue
            except RowDamaged as error:
                self._origin.discard(error)
                await self._let_go()
            except DiskFailed:
                raise
            except FAILURES as error:
                self._logger.warning("table_replica_waits", reason=str(error), next="it is tried again")
            await self._share.clock.sleep(AGAIN_SECONDS)

    async def _caught_up(self, log: LogBounds) -> bool:
        """Applies what the shadow shows; returns whether that is all."""
        table = self._table
        if table is not None and table.state.applied < log.start_offset:  # what it lacks is trimmed
            await self._let_go()
            table = None
        if table is None:
            now = self._share.clock.monotonic()
            self._without_since = now if self._without_since is None else self._without_since
            began = await self._origin.begin(log, grows=now - self._without_since < BEHIND_SECONDS)
            table = self._table = LoadedTable(*began, self._log, self._share, self._logger)
            self._without_since = None
            self._logger.debug("table_replica_begun", applied=table.state.applied)
        while table.state.applied < log.high_watermark and self.partition.log is log:
            await table.read_on(log, log.high_watermark)
        table.state.news_at = self._share.clock.monotonic()
        return self.partition.log is log

    async def _let_go(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            await in_turns(table.end(), self._share.clock)

    # --- its use ----------------------------------------------------------------------------------------------------

    def look(self, look: Callable[[TableState], None], refuse: Callable[[str], None]) -> None:
        """Calls `look` with the state, which may be older than the leader's, or `refuse` with a reason."""
        table = self._table
        if table is None:
            refuse("the replica of the table is being loaded")
        elif table.state.is_behind:
            refuse("the replica of the table is applying a batch")
        else:
            try:
                look(table.state)
            except RowDamaged as error:
                refuse(str(error))

    async def taken(self) -> LoadedTable | None:
        """Ends the replica, and returns what it has loaded."""
        self._scope.cancel()
        await self._ended.wait()
        table, self._table = self._table, None
        return table

    def end(self) -> None:
        """The shadow is led by another broker from now on, or was deleted."""
        self._scope.cancel()
        table, self._table = self._table, None
        if table is not None:
            self._share.tasks.start_soon(in_turns, table.end(), self._share.clock)


FAILURES: Final = (
    *(LedgerError, MetadataError, WorldError, BatchRejected, UnpackedTooLarge),
    *(LogUnreadable, TableBehind, TableTooLarge),
)
"""The errors after which a replica tries again."""
