"""The flushes of one partition's table to the store on disk.

1. A flush begins when the unflushed changes take `flush_bytes`, or are `flush_seconds` old, and no batch is half
   applied.
2. The store has the applied position with the changes, and the identity of the last batch before it. If the log has
   another batch there later, the store is another life's (`table_origin`).
3. A flush that finds no space is tried again until there is some. Until then the changes stay in memory.
4. A device that fails ends the process, as that of any store does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gnomon.bookie.errors import LedgerError
from gnomon.broker.tables.stored.disk_engine import DiskEngine
from gnomon.broker.tables.table_counts import TableCounts
from gnomon.broker.tables.table_log import TableLog
from gnomon.broker.tables.table_state import TableState
from gnomon.log.entry import Offset
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import in_turns
from gnomon.runtime.settings.settings import TableSettings
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock, DiskFull

AGAIN_SECONDS: Final = 1.0


class TableFlushes:
    """Flushes one table, until `end`."""

    def __init__(
        self,
        state: TableState,
        engine: DiskEngine,
        log: TableLog,
        settings: TableSettings,
        counts: TableCounts,
        clock: Clock,
        timers: Timers,
        tasks: Tasks,
        logger: Logger,
    ) -> None:
        """Nothing is to be flushed."""
        self._state = state
        self._engine = engine
        self.log = log
        self._settings = settings
        self._counts = counts
        self._clock = clock
        self._timers = timers
        self._tasks = tasks
        self._logger = logger
        self._timer: Timer | None = None
        self._due = False
        self._over = False
        self.failure: str | None = None
        """The reason why the last attempt found no space."""
        state.operations.collect_changes()

    def applied(self) -> None:
        """Something was applied: begins a flush that is due."""
        engine = self._engine
        if engine.is_flushing or self._over or self._state.is_behind or not engine.unflushed_bytes:
            return
        if self._due or engine.unflushed_bytes >= self._settings.flush_bytes:
            self._begin()
        elif self._timer is None:
            self._timer = self._timers.call_at(self._clock.monotonic() + self._settings.flush_seconds, self._is_due)

    def _is_due(self) -> None:
        self._timer, self._due = None, True
        self.applied()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, False
        self._engine.begin_flush(self._state.operations.take_changes())
        self._tasks.start_soon(self._flush, self._state.applied)

    async def _flush(self, applied: Offset) -> None:
        while (freed := await self._written(applied)) is None:
            await self._clock.sleep(AGAIN_SECONDS)
        self.failure = None
        self._counts.flushes += 1
        self._logger.debug("table_flushed", applied=applied)
        self.applied()
        await in_turns(freed, self._clock)

    async def _written(self, applied: Offset) -> Iterator[None] | None:
        """Writes what is set aside; returns what frees its memory, None if there was no space."""
        try:
            record = None if self._over else await self.log.identity_before(applied)
            return self._engine.end_flush() if self._over else await self._engine.flush(applied, record)
        except (DiskFull, LedgerError) as error:
            if self.failure is None:
                self._logger.error("table_not_flushed", reason=str(error), next="it is tried again")
            self.failure = str(error)
            return None

    def end(self) -> None:
        """No further flush begins; one that is being written is completed."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def unflushed_bytes(self) -> int:
        """The memory of the changes that are not in the store."""
        return self._engine.unflushed_bytes

    @property
    def is_too_far(self) -> bool:
        """Whether more is unflushed than the memory is meant for."""
        return self._engine.unflushed_bytes > self._settings.behind_bytes_max

    def refusal(self) -> str:
        """The reason why nothing more is applied while `is_too_far`."""
        unflushed_bytes = self._engine.unflushed_bytes
        reason = self.failure or "they are being written"
        return (
            f"the store of tables lacks {unflushed_bytes} bytes of changes, and memory has no room for more: {reason}"
        )
