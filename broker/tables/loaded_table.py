"""The table of one partition that this broker has loaded, as the leader of the partition or as a replica.

1. It belongs to one follower at a time. A leader takes over what a replica of this broker has, and goes on from there.
2. Batches are applied in the order of the log, a part in each turn. What is applied is durable.
3. A table on disk applies no more than its memory has room for before a flush (`table_flushes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import trio

from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.tables import table_log, table_state
from gnomon.broker.tables.paced_calls import PacedCalls
from gnomon.broker.tables.stored.disk_engine import DiskEngine
from gnomon.broker.tables.table_counts import TableCounts
from gnomon.broker.tables.table_flushes import TableFlushes
from gnomon.broker.tables.table_log import TableLog
from gnomon.broker.tables.table_state import TableState
from gnomon.broker.tables.watches.table_watches import WatchesMemory
from gnomon.log.entry import Offset
from gnomon.log.log_reader import LogBounds
from gnomon.log.tables.changes import TableChanges
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PAUSE_SECONDS, in_turns
from gnomon.runtime.settings.settings import TableSettings
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.batch import parse_batch


class TableBehind(Exception):
    """The table cannot apply more of its log now; the text says why."""


class TablesShare(NamedTuple):
    """The parts of a broker that all of its tables share."""

    settings: TableSettings
    batch_thread: BatchThread
    clock: Clock
    timers: Timers
    tasks: Tasks
    paced: PacedCalls
    """Runs the calls that read tables."""
    watches_memory: WatchesMemory
    one_snapshot: trio.Lock
    """Held while a snapshot is taken."""
    counts: TableCounts


class LoadedTable:
    """One table, until `end`."""

    def __init__(
        self, state: TableState, engine: DiskEngine | None, log: TableLog, share: TablesShare, logger: Logger
    ) -> None:
        """A table that has applied the log up to `state.applied`.

        Args:
            engine: that of the state if it is one on disk.
        """
        self.state = state
        state.news_at = share.clock.monotonic()
        self.log = log
        self._clock = share.clock
        self.is_over = False
        self.flushes: TableFlushes | None = None
        if engine is not None:
            self.flushes = TableFlushes(
                state, engine, log, share.settings, share.counts, share.clock, share.timers, share.tasks, logger
            )

    @property
    def records_at_once(self) -> int:
        """The most records of a batch whose entries are computed in one turn."""
        return table_log.RECORDS_AT_ONCE_MAX if self.flushes is None else table_state.LOOKED_UP_AT_ONCE

    def follow(self, log: TableLog) -> None:
        """The log is read by another partition of this broker from now on."""
        self.log = log
        if self.flushes is not None:
            self.flushes.log = log

    def end(self) -> Iterator[None]:
        """The table is not used any more; frees its memory, a part in each step."""
        self.is_over = True
        if self.flushes is not None:
            self.flushes.end()
        return self.state.engine.close()

    async def prepare(self, changes: TableChanges, append_time_ms: int) -> None:
        """Does most of the work of `TableState.give_out` for a batch of many records, in several turns."""
        if len(changes.changes) > self.records_at_once:
            await in_turns(self._while_used(self.state.prepare(changes, append_time_ms)), self._clock)

    async def look_up(self, keys: Sequence[bytes]) -> None:
        """Brings the entries of many keys into memory, in several turns, before a decision that looks at them."""
        await in_turns(self._while_used(self.state.look_up(keys)), self._clock)

    def _while_used(self, steps: Iterator[None]) -> Iterator[None]:
        """The steps until the table ends, when its store may be closed."""
        for step in steps:
            yield step
            if self.is_over:
                return

    async def read_on(self, bounds: LogBounds, end: Offset) -> None:
        """Applies some durable batches below `end` from the log, unless the table ends meanwhile. Other tasks run.

        Raises:
            LedgerError, LogUnreadable: they cannot be read.
            BatchRejected, UnpackedTooLarge: they are no batches for a table.
            RowDamaged: the store is damaged.
            TableBehind: the store has no space for what is in memory.
        """
        state = self.state
        await trio.lowlevel.checkpoint()  # also if nothing is applied
        await self.make_room()
        batches = await self.log.batches(bounds, state.applied)
        state.news_at = self._clock.monotonic()
        for batch in batches:
            header = parse_batch(memoryview(batch))
            if header.base_offset >= end:
                return
            changes = await self.log.changes_of(batch, header)
            append_time_ms = header.max_timestamp if header.is_log_append_time else -1
            await self.prepare(changes, append_time_ms)
            if self.is_over:
                return
            state.give_out(changes, Offset(header.base_offset), append_time_ms)
            state.durable(Offset(header.next_offset))
            await self.apply_all()

    async def make_room(self) -> None:
        """Waits until the memory has room for more changes.

        Raises:
            TableBehind: the store has no space for those that are in memory.
        """
        flushes = self.flushes
        if flushes is None:
            return
        flushes.applied()
        while flushes.is_too_far and not self.is_over:
            if flushes.failure is not None:
                raise TableBehind(flushes.refusal())
            await self._clock.sleep(PAUSE_SECONDS)

    async def apply_all(self) -> None:
        """Applies what is durable, a part in each turn."""
        await trio.lowlevel.checkpoint()
        while self.state.is_behind and not self.is_over:
            self.state.apply()
            await self._clock.sleep(PAUSE_SECONDS)
